"""Adapt an ImageNet classifier of torchvision or timm over a folder of your images.

python examples/pretrained.py photos/
python examples/pretrained.py photos/ --model timm:resnet50.a1_in1k --method ent-w+delta
python examples/pretrained.py photos/ --weights resnet50.safetensors    # without a network
python examples/pretrained.py photos/ --random                          # only to see it run: the answers mean nothing
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

import delta_tta
from delta_tta import models

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp"}


def load(name: str, weights: str | None) -> tuple[nn.Module, Callable[[Image.Image], Tensor], Sequence[str]]:
    """Return the network, its own preprocessing, and the names of its classes."""
    from torchvision.models import ResNet50_Weights, get_model_weights

    library, _, bare = name.partition(":")
    network = models.load(name, weights).model
    if library == "timm":
        from timm.data import create_transform, resolve_model_data_config

        preprocess = create_transform(**resolve_model_data_config(network), is_training=False)
    else:
        published = get_model_weights(bare)
        preprocess = (published[weights] if weights in published.__members__ else published.DEFAULT).transforms()
    return network, preprocess, ResNet50_Weights.DEFAULT.meta["categories"]


def batches(paths: Sequence[Path], size: int, preprocess: Callable[[Image.Image], Tensor]) -> Iterator[Tensor]:
    """Yield the images in order, `size` at a time, as the network wants them."""
    for start in range(0, len(paths), size):
        pictures = (Image.open(path).convert("RGB") for path in paths[start : start + size])
        yield torch.stack([preprocess(picture) for picture in pictures])


def main() -> None:
    """Read the command line, adapt, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="images, in any sub-folders; they arrive in the order of their paths")
    parser.add_argument("--model", default="torchvision:resnet50", help="torchvision:NAME or timm:NAME [%(default)s]")
    parser.add_argument("--method", default="tent+delta", help="`delta-tta methods` lists them [%(default)s]")
    parser.add_argument("--batch", type=int, default=32, help="images at a time [%(default)s]")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--weights", help="a file, or a name of torchvision's; without it the library downloads its own"
    )
    source.add_argument("--random", action="store_true", help="an untrained network, for a look without any weights")
    args = parser.parse_args()
    if args.batch < 1:
        parser.error(f"--batch: expected at least 1, but got {args.batch}")
    if not args.model.startswith(("torchvision:", "timm:")):
        parser.error(f"--model: expected torchvision:NAME or timm:NAME, but got {args.model!r}")
    paths = sorted(path for path in args.folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not paths:
        parser.error(f"expected images ({', '.join(sorted(SUFFIXES))}) below {args.folder}, but found none")

    if args.random:
        torch.manual_seed(0)
        print("Random weights: what follows shows how it runs; the labels mean nothing.")
    try:
        network, preprocess, names = load(args.model, "random" if args.random else args.weights)
    except OSError as error:
        raise SystemExit(
            f"The weights of {args.model} could not be fetched ({error}). Give --weights FILE, or --random for a look."
        ) from None
    model = delta_tta.adapt(network, args.method, "imagenet-c")
    arrived = iter(paths)
    for images in batches(paths, args.batch, preprocess):
        confidence, label = model(images).softmax(1).max(1)
        for c, k in zip(confidence.tolist(), label.tolist(), strict=True):
            print(f"{next(arrived).relative_to(args.folder)}\t{names[k] if k < len(names) else k}\t{c:.3f}")
        seen = model.signals
        numbers = {"loss": seen.loss, "entropy": seen.entropy, "share learnt from": seen.used}
        told = [f"{name} {value:.3f}" for name, value in numbers.items() if value is not None]
        told += [f"skipped: {seen.skipped}"] if seen.skipped else []
        print(", ".join([f"# batch {seen.step}: {seen.samples} images so far", *told]))


if __name__ == "__main__":
    try:
        main()
    except (delta_tta.DeltaError, OSError) as error:  # OSError: an image that cannot be read
        raise SystemExit(str(error)) from None
