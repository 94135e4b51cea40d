"""MEMO (Zhang et al. 2022): each image by itself; make its augmented copies agree, answer, forget.

Per image: from the source weights, one step of plain SGD on all parameters along the entropy of the mean prediction
over AugMix copies; then the image itself is predicted. The copies run as one batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from ..augmentations.augmix import augmix
from ..engine.finite import not_finite
from ..engine.model import AdaptedModel
from ..engine.step import Update
from ..losses import marginal_entropy
from ..norms.batch import BatchStatistics
from ..norms.statistics import batch_moments
from ..norms.tbr import eval_norm
from ..options import RateOptions, SeedOptions, ViewOptions
from ..prediction import Prediction
from ..recipe import Recipe
from ..registry import component
from ..settings import Settings, on_cifar
from ..signals import Outcome, Reason, Skip
from .standalone import StandaloneUpdater

SOURCE_SHARE = 16 / 17
"""Of the source's statistics; the rest is the batch's, for every size."""
AT_ONCE = 4_000_000
"""Numbers in the copies made at once: AugMix needs about ten times their memory."""


class SourceAndBatch(BatchStatistics):
    """16/17 source statistics, 1/17 of the batch's."""

    def frozen(self, x: Tensor) -> Tensor:
        """Normalise with the mixture."""
        s = self.source
        if s.running_mean is None or s.running_var is None:
            return super().frozen(x)
        mean, var = batch_moments(x.detach())  # constants for the gradient, as in MEMO's own program
        count = x.numel() // x.shape[1]
        var = var * (count / max(count - 1, 1))  # unbiased, as torch's running statistics are
        mean = torch.lerp(mean, s.running_mean.to(mean.dtype), SOURCE_SHARE)
        var = torch.lerp(var, s.running_var.to(var.dtype), SOURCE_SHARE)
        return eval_norm(x, *self._affine, mean, (var + s.eps).sqrt())


@dataclass(frozen=True)
class MemoOptions(SeedOptions, ViewOptions, RateOptions):
    """Settings of MEMO; all of them others have as well."""


@component(
    "memo", "standalone", "per image, one step towards agreement of its copies (MEMO, Zhang et al. 2022)", alone=True
)
class Memo(StandaloneUpdater):
    """Learns nothing that lasts."""

    Options = MemoOptions
    defaults: ClassVar[Mapping[str, Any]] = {"lr": 2.5e-4, "views": 64}
    defaults_by_preset: ClassVar[Mapping[str, Mapping[str, Any]]] = on_cifar(lr=5e-3, views=32)
    bakes = False
    cost = 118.0

    layers = SourceAndBatch
    learns = False
    compares = False

    def __init__(self, adapted: AdaptedModel, recipe: Recipe, settings: Settings) -> None:
        super().__init__(adapted, recipe, settings)
        self.options = settings.options(MemoOptions)

    def predict(self, x: Tensor) -> Tensor:
        """Answer as always: nothing lasts."""
        return self.observe(x)[0]

    def observe(self, x: Tensor, later: bool = False) -> tuple[Tensor, Update]:
        """Answer image by image."""
        answers, losses = zip(*(self._one(one, copies) for one, copies in self._with_copies(x)), strict=True)
        logits = torch.cat(answers)
        learnt = [loss for loss in losses if loss is not None]

        def update() -> Outcome:
            prediction = Prediction(logits)
            self.classes = prediction.classes
            return Outcome(
                loss=sum(learnt) / len(learnt) if learnt else math.nan,
                entropy=float(prediction.entropy.mean()),
                used=len(learnt) / len(losses),
                skipped=None if learnt else Skip(Reason.NOT_FINITE, "loss, gradient"),
            )

        return logits, update

    def _with_copies(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Give each image, as a batch of one, and its copies; made for as many images at once as memory allows."""
        views = self.options.views
        several = max(1, AT_ONCE // (views * max(1, x[0].numel())))
        for images in x.split(several):
            generator = Generator().manual_seed(self.options.seed)
            copies = augmix(self._pixels.of(images), views, generator)
            for i in range(len(images)):
                yield images[i : i + 1], self._pixels.back(copies[:, i], x)

    def _one(self, x: Tensor, copies: Tensor) -> tuple[Tensor, float | None]:
        """Return the answer to one image, and the entropy before the step; None where no step could be taken."""
        with torch.enable_grad():
            loss = marginal_entropy(Prediction(self.learnable(copies)).log_p)
        gradients = self.gradients(loss)
        parameters = list(self.adapted.parameters.values())
        own = [p.data for p in parameters]
        finite = not_finite({"loss": [loss.detach()], "gradient": gradients}) is None
        try:
            for p, gradient in zip(parameters, gradients, strict=True) if finite else ():
                if gradient is not None:
                    p.data = p.data - self.options.lr * gradient
            with torch.no_grad():
                return self.logits(x).detach(), float(loss.detach()) if finite else None
        finally:
            for p, value in zip(parameters, own, strict=True):
                p.data = value
