"""How a model wants its inputs scaled: mean and spread of each channel, and where they were found."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .errors import InputError


class NormalisationWarning(UserWarning):
    """The given input normalisation is not the one the model was trained with."""


@dataclass(frozen=True)
class Normalisation:
    """(image / 255 − mean) / std, channel by channel.

    Attributes:
        mean: of the red, green and blue channel, of values 0 to 1.
        std: of the same channels.
        source: where it comes from, for the record.

    Examples:
        >>> Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)).flatten()
        tensor([1., 1., 1.])
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    source: str = "given"

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            values = tuple(float(v) for v in getattr(self, name))
            if len(values) != 3 or not all(map(math.isfinite, values)) or (name == "std" and min(values) <= 0):
                raise InputError(f"Expected three values{' above 0' * (name == 'std')} as `{name}`, but got {values}.")
            object.__setattr__(self, name, values)

    def __call__(self, images: Tensor) -> Tensor:
        """Return uint8 images (B, 3, H, W) as the model wants them."""
        if images.dtype != torch.uint8:
            raise InputError(f"Expected images of uint8, 0 to 255, but got {images.dtype}.")
        mean, std = (torch.tensor(v, device=images.device).view(3, 1, 1) * 255 for v in (self.mean, self.std))
        return (images - mean) / std

    def __str__(self) -> str:
        """Write it for a report."""
        return f"mean {self.mean}, std {self.std} ({self.source})"

    def matches(self, other: Normalisation) -> bool:
        """Return whether both scale alike (to three digits)."""
        pairs = zip(self.mean + self.std, other.mean + other.std, strict=True)
        return all(abs(a - b) < 2e-3 for a, b in pairs)


IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "ImageNet's usual")


def normalisation_of(
    model: nn.Module, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> Normalisation:
    """Return how to scale the inputs of a model: as given, else as the model's own metadata says.

    A model of timm carries its mean and std; so does one made by `delta_tta.models.load`, and one whose weights have a
    card that says it. What is given wins, with a `NormalisationWarning` where the model says otherwise.
    """
    own = _own(model)
    if (mean is None) != (std is None):
        raise InputError("Expected both `mean` and `std`, or neither.")
    if mean is not None and std is not None:
        given = Normalisation(tuple(mean), tuple(std))  # type: ignore[arg-type]  # checked by __post_init__
        if own is not None and not own.matches(given):
            warnings.warn(
                f"Input normalisation: {given}, but the model says {own}.", NormalisationWarning, stacklevel=2
            )
        return given
    if own is None:
        raise InputError(
            f"{type(model).__name__} does not say how its inputs are normalised; give `mean` and `std` (the "
            f"command: --mean and --std), such as mean={IMAGENET.mean}, std={IMAGENET.std} for most ImageNet models."
        )
    return own


def _own(model: nn.Module) -> Normalisation | None:
    for name in ("normalisation", "card_normalisation"):
        known: Any = getattr(model, name, None)
        if isinstance(known, Normalisation):
            return known
    for name in ("pretrained_cfg", "default_cfg"):
        config: Any = getattr(model, name, None)
        if isinstance(config, dict) and config.get("mean") and config.get("std"):
            return Normalisation(tuple(config["mean"]), tuple(config["std"]), f"timm's {name}")
    return None
