"""TTA (Ashukha et al. 2020): the mean of the probabilities over random crops of the image; the model is not changed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..augmentations.crops import crops
from ..augmentations.pixels import Pixels
from ..options import SeedOptions, ViewOptions
from ..registry import component
from ..settings import Settings, on_cifar
from ..tensors import at_least_float32
from .base import Postprocess


@dataclass(frozen=True)
class TtaOptions(SeedOptions, ViewOptions):
    """Settings of TTA; all of them others have as well."""


@component("tta", "postprocess", "average the predictions over random crops (TTA, Ashukha et al. 2020)", alone=True)
class Tta(Postprocess):
    """Every call draws the same crops, so that the same image gets the same answer."""

    Options = TtaOptions
    defaults: ClassVar[Mapping[str, Any]] = {"views": 64}
    defaults_by_preset: ClassVar[Mapping[str, Mapping[str, Any]]] = on_cifar(views=32)
    cost = 34.0

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        super().__init__(model, settings)
        self.options = settings.options(TtaOptions)
        self._pixels = Pixels(model, settings)

    def __call__(self, x: Tensor, logits: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the logarithm of the mean over `views` crops; the image itself is not among them."""
        generator = torch.Generator().manual_seed(self.options.seed)
        clean, views = self._pixels.of(x), self.options.views

        def log_p() -> Tensor:
            copies = self._pixels.back(crops(clean, 1, generator)[0], x)
            return at_least_float32(run(copies)).log_softmax(1)

        total = functools.reduce(torch.logaddexp, (log_p() for _ in range(views)))
        return (total - math.log(views)).to(logits.dtype)
