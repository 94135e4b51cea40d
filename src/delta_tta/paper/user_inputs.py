"""What the user gives for a benchmark of the paper: data, weights and clean images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..data.sources import how_to_get
from ..errors import SettingError
from ..experiments.place import Kind
from ..models.load import architecture_of

KINDS: Mapping[str, Kind] = {
    "cifar100": "cifar",
    "cifar100-c": "cifar-c",
    "imagenet-c": "imagenet-c",
    "imagenet-r": "imagenet-r",
    "ytbb-sub": "video",
}
"""What lies at --data."""
WEIGHTS = {
    "cifar100-c": "RobustBench (https://robustbench.github.io) publishes AugMix's as Hendrycks2020AugMix_ResNeXt, for "
    "CIFAR-100 under corruptions; `--on cifar100` has its weights.",
    "ytbb-sub": "Give a ResNet-18 of torchvision's, trained on its 21 classes, as .safetensors or a torch checkpoint; "
    "`delta-tta train` makes one.",
}
"""Where those come from that none come with."""


@dataclass(frozen=True)
class UserInputs:
    """What the user says of a ground: where the images are, weights for its network, and clean images."""

    data: Path | None = None
    weights: Path | None = None
    clean: Path | None = None


def cifar_model(given: UserInputs, embedded: str, called: str) -> tuple[str, str | None, str]:
    """Return model, weights and what to call them: the embedded network, or the one a file of weights is for."""
    if given.weights is None:
        return embedded, None, called
    model = architecture_of(given.weights)
    return model, str(given.weights), f"{model} ({given.weights.name})"


def data_of(name: str, path: Path | None) -> str:
    """Return where the data of a benchmark is, or say how to get it."""
    if path is None:
        raise SettingError(
            f"Expected where the data for '{name}' is (--data PATH), but there is none. {how_to_get(KINDS[name])}"
        )
    return str(path)


def weights_of(name: str, weights: Path | None) -> Path:
    """Return the weights for a benchmark with which none come, or say where to find some."""
    if weights is None:
        raise SettingError(
            f"Expected the weights of the network for '{name}' (--weights FILE): none come with it. {WEIGHTS[name]}"
        )
    return weights
