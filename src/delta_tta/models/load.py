"""Names of models, and what each kind of name means."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import ModelError, nearest
from ..normalization import Normalisation, normalisation_of
from .cifar import CifarResNet, CifarResNeXt, WideResNet
from .lite import CifarLite
from .public import GroupResNet, PlainResNet
from .transformer import CompactTransformer
from .weights import fill, fits, load_weights, mark, numbers, outputs_in, read_weights

HALF = Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), "AugMix's")
CIFAR10 = Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), "CIFAR-10's statistics")
CIFAR100 = Normalisation((0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762), "CIFAR-100's statistics")

ARCHITECTURES: dict[str, Callable[..., nn.Module]] = {
    **{f"resnet{depth}": partial(CifarResNet, depth) for depth in (20, 32, 44, 56, 110)},
    "efficientnet-lite0": CifarLite,
    **{f"wrn{depth}-{width}": partial(WideResNet, depth, width) for depth, width in ((16, 2), (28, 2), (40, 2))},
    "resnext29": CifarResNeXt,
    **{f"resnet{depth}-a": partial(PlainResNet, depth) for depth in (20, 32, 44, 56, 110)},
    "resnet26-gn": partial(GroupResNet, 26),
    "cct": CompactTransformer,
}
EMBEDDED = ("resnet20-cifar10", "resnet20-cifar100", "efficientnet-lite0-cifar100", "cct-cifar10")
"""Networks that come with the package, trained by tools/train_cifar.py."""
SOURCES = ("torchvision:…", "timm:…", "robustbench:…", "file.py:factory")


@dataclass(frozen=True)
class NamedModel:
    """A model and what must be known to use it.

    Attributes:
        model: in eval mode.
        name: how it was asked for.
        weights: where its weights come from.
        normalisation: how it wants its inputs.
        size: side of the images it was trained on.
    """

    model: nn.Module
    name: str
    weights: str
    normalisation: Normalisation
    size: int

    @property
    def normalization(self) -> Normalisation:
        """The same as `normalisation`."""
        return self.normalisation

    def describe(self) -> dict[str, str]:
        """Return what a result must say about its model."""
        return {"model": self.name, "weights": self.weights, "normalisation": str(self.normalisation)}


def known_models() -> tuple[str, ...]:
    """Return the names that need no other package, then the forms of the others."""
    return (*EMBEDDED, *ARCHITECTURES, *SOURCES)


def load(
    name: str,
    weights: str | Path | None = None,
    classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> NamedModel:
    """Return the model of this name, ready to predict.

    Args:
        name: an embedded network ("resnet20-cifar10"), a CIFAR architecture ("resnet20", "wrn40-2", "resnext29"; needs
            `weights`), "torchvision:NAME", "timm:NAME", "robustbench:[DATA/]NAME", or "path/to/file.py:factory", a
            function of your own (called with `classes` if given; the file is run).
        weights: a .safetensors file or a torch checkpoint, or the name of torchvision's ("IMAGENET1K_V1", the paper's
            for ResNet-50); None takes the published weights of torchvision, timm and
            RobustBench (downloaded by them), or what your factory returns; "random" the untrained network.
        classes: number of outputs; None: as many as the weights in a file are for, else the source's own.
        mean: of the input channels, 0 to 1; None takes what the model's source says.
        std: of the input channels, like `mean`.
    """
    kind, colon, rest = name.rpartition(":") if ".py:" in name else name.partition(":")
    if name in EMBEDDED:
        found = _embedded(name, weights)
    elif name in ARCHITECTURES:
        found = _cifar(name, weights, classes)
    elif colon and kind.endswith(".py"):
        found = _factory(Path(kind), rest, weights, classes, (mean, std))
    elif colon and kind in _MAKERS:
        try:
            found = _MAKERS[kind](rest, weights, classes)
        except ImportError as error:
            raise ImportError(f"Models of {kind} need the package {kind}: pip install {kind} ({error}).") from error
    else:
        raise ModelError(f"Unknown model {name!r}.{nearest(name, known_models())}")
    model: Any = found.model
    trained = getattr(model, "card_normalisation", found.normalisation)  # what the card of its weights says goes first
    model.normalisation = found.normalisation if trained.matches(found.normalisation) else trained
    scale = normalisation_of(model, mean, std)
    model.normalisation = scale  # it travels with the model
    return dataclasses.replace(found, model=model.eval(), name=name, normalisation=scale)


def architecture_of(weights: str | Path) -> str:
    """Return the CIFAR architecture that a file of weights is for: as its card says, else by the names and shapes."""
    read, card = read_weights(weights)
    if card.get("architecture") in ARCHITECTURES:
        return card["architecture"]
    for name, make in ARCHITECTURES.items():
        if fits(make(classes=10), read):
            return name
    raise ModelError(f"The weights in {weights} are of no CIFAR network known here: {', '.join(ARCHITECTURES)}.")


def _embedded(name: str, weights: str | Path | None) -> NamedModel:
    architecture, _, data = name.rpartition("-")
    model = ARCHITECTURES[architecture](classes=100 if data == "cifar100" else 10)
    if weights is not None:
        raise ModelError(f"{name!r} comes with its weights; write {architecture!r} to load others.")
    with resources.as_file(resources.files("delta_tta").joinpath(f"assets/{name}.safetensors")) as path:
        card = load_weights(model, path)
    scale = Normalisation(numbers(card["mean"]), numbers(card["std"]), "the network's card")  # type: ignore[arg-type]
    return NamedModel(model, name, f"embedded, {card['clean_accuracy']} % on clean test images", scale, 32)


def _cifar(name: str, weights: str | Path | None, classes: int | None) -> NamedModel:
    if weights is None:
        raise ModelError(
            f"{name!r} is an architecture; give `weights` (a file, or 'random' for the untrained network)."
        )
    model, count = _filled(lambda count: ARCHITECTURES[name](classes=count or 10), weights, classes)
    half = name == "resnext29" or name.startswith("wrn")
    usual = HALF if half else CIFAR100 if count == 100 else CIFAR10
    own: Normalisation = getattr(model, "normalisation", usual)
    return NamedModel(model, name, str(weights), own, 32)


def _filled(
    make: Callable[[int | None], nn.Module], weights: str | Path, classes: int | None
) -> tuple[nn.Module, int | None]:
    """Return a model with the weights of a file, and how many classes it has."""
    model = make(classes)
    if weights == "random":
        return model, classes
    read, card = read_weights(weights)
    found = outputs_in(read, model) if classes is None else classes
    if found is not None and found != outputs_in(model.state_dict(), model):
        model = make(found)
    fill(model, read, weights)
    mark(model, card, weights)
    return model, found


def _imported(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except RuntimeError as error:  # torchvision's way to say that its operators were built for another torch
        raise ModelError(
            f"{library} cannot be imported ({error}). Torch and torchvision are of different builds, such as one for "
            "the CPU and one for CUDA: install both from the same index."
        ) from error


def _torchvision(name: str, weights: str | Path | None, classes: int | None) -> NamedModel:
    zoo = _imported("torchvision").models
    if name not in zoo.list_models():
        raise ModelError(f"torchvision has no model {name!r}.{nearest(name, zoo.list_models())}")
    choices = zoo.get_model_weights(name)
    named = weights if isinstance(weights, str) and weights in choices.__members__ else None
    published = choices[named] if named else choices.DEFAULT
    weights = None if named else weights
    if weights is None:
        model = zoo.get_model(name, weights=published, **_shape(classes))
    else:
        model, _ = _filled(lambda count: zoo.get_model(name, weights=None, **_shape(count)), weights, classes)
    transforms = published.transforms()
    scale = Normalisation(tuple(transforms.mean), tuple(transforms.std), f"torchvision's {published}")
    return NamedModel(model, name, str(weights or published), scale, transforms.crop_size[0])


def _shape(classes: int | None) -> dict[str, Any]:
    return {} if classes is None else {"num_classes": classes}


def _timm(name: str, weights: str | Path | None, classes: int | None) -> NamedModel:
    timm = _imported("timm")
    if not timm.is_model(name):
        raise ModelError(f"timm has no model {name!r}.{nearest(name, timm.list_models())}")
    model: Any
    if weights is None:
        model = timm.create_model(name, pretrained=True, **_shape(classes))
    else:
        model, _ = _filled(lambda count: timm.create_model(name, **_shape(count)), weights, classes)
    size = model.pretrained_cfg.get("input_size", (3, 224, 224))[-1]
    return NamedModel(model, name, str(weights or "timm's"), normalisation_of(model), size)


def _robustbench(name: str, weights: str | Path | None, classes: int | None) -> NamedModel:
    from robustbench.utils import load_model

    if weights is not None or classes is not None:
        raise ModelError("Models of RobustBench bring their own weights and classes; leave these out.")
    data, slash, bare = name.rpartition("/")
    model = load_model(bare, dataset=data if slash else "cifar10", threat_model="corruptions")
    # RobustBench's models take images in 0 to 1 and normalise themselves.
    inside = Normalisation((0.0, 0.0, 0.0), (1.0, 1.0, 1.0), "RobustBench's models normalise inside")
    return NamedModel(model, name, "RobustBench's", inside, 224 if data == "imagenet" else 32)


def _factory(
    file: Path,
    function: str,
    weights: str | Path | None,
    classes: int | None,
    scale: tuple[Sequence[float] | None, Sequence[float] | None],
) -> NamedModel:
    if not file.is_file():
        raise ModelError(f"Expected a Python file at {file}, but there is none.")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    make = getattr(module, function, None)
    if not callable(make):
        functions = [n for n in vars(module) if callable(getattr(module, n)) and not n.startswith("_")]
        raise ModelError(f"{file} has no function {function!r}.{nearest(function, functions)}")
    model = make() if classes is None else make(classes=classes)
    if not isinstance(model, nn.Module):
        raise ModelError(f"Expected {file}:{function} to return a torch.nn.Module, but got {type(model).__name__}.")
    if weights is not None and weights != "random":
        load_weights(model, weights)
    return NamedModel(
        model, function, str(weights or f"as {function} returns them"), normalisation_of(model, *scale), 224
    )


_MAKERS: dict[str, Callable[[str, str | Path | None, int | None], NamedModel]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "robustbench": _robustbench,
}
