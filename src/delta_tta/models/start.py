"""The network that a training starts from: new, or with the weights of another."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..normalization import Normalisation, normalisation_of
from .load import EMBEDDED, NamedModel, load
from .weights import card_normalisation, fill, read_weights

PUBLISHED = "published"


def start(
    name: str,
    weights: str = "random",
    *,
    classes: int,
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> tuple[NamedModel, list[str]]:
    """Return a network to train, and the names of the weights of its last layer if that is new.

    Args:
        name: as in `load`; a function of your own is called with `classes`.
        weights: "random", a file, an embedded network, a name of torchvision's for its model ("IMAGENET1K_V1"), or
            "published" for those that `load` takes by itself. The last layer is new where it has other outputs.
        classes: number of outputs.
        seed: of what is random.
        mean: of the input channels, 0 to 1; None takes what the weights or the model's source say.
        std: of the input channels, like `mean`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        named = load(name, "random", classes, mean, std)
    if weights == "random":
        return named, []
    found, scale = _weights(name, weights, mean, std)
    new = fill(named.model, found, weights, new_head=True)
    if scale is not None and mean is None:
        model: Any = named.model
        model.normalisation = scale
        named = dataclasses.replace(named, normalisation=scale)
    return dataclasses.replace(named, weights=weights), new


def _weights(
    name: str, weights: str, mean: Sequence[float] | None, std: Sequence[float] | None
) -> tuple[dict[str, Tensor], Normalisation | None]:
    """Return the weights, and the normalisation they were trained with where it is known."""
    if weights in EMBEDDED:
        other = load(weights)
    elif weights == PUBLISHED or (name.startswith("torchvision:") and not Path(weights).is_file()):
        other = load(name, None if weights == PUBLISHED else weights, mean=mean, std=std)
    else:
        found, card = read_weights(weights)
        return found, card_normalisation(card, weights)
    return other.model.state_dict(), normalisation_of(other.model)
