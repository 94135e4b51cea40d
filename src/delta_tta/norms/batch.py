"""Normalise with the statistics of each batch (BN adapt)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from ..options import Options, require
from ..registry import component
from ..settings import Settings
from .base import AdaptiveNorm, Phase, Tail, Used, batch_norm
from .statistics import Observation, batch_moments, by_planes
from .tbr import eval_norm, tbr

MANY = 2**16
"""Values from which measuring them faster saves more time than the calls for it take."""


@dataclass(frozen=True)
class PriorOptions(Options):
    """Settings of batch statistics without an objective.

    Attributes:
        prior: N of BN adapt; the source statistics weigh as much as N samples of the batch.
    """

    prior: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require("prior", self.prior, 0 <= self.prior < math.inf, "at least 0 and finite")


@component("bn", "statistics", "normalise with each batch's own statistics (BN adapt)", alone=True)
class BatchStatistics(AdaptiveNorm):
    """Batch statistics, mixed with the source's as if those came from `prior` more samples."""

    OptionsAlone = PriorOptions
    per_batch = True
    fuses = True

    def __init__(self, source: _BatchNorm, tail: Tail | None, settings: Settings, phase: Phase) -> None:
        super().__init__(source, tail, settings, phase)
        self._prior = settings.options(PriorOptions).prior

    def frozen(self, x: Tensor) -> Tensor:
        """Normalise with the batch's statistics; there is nothing to remember."""
        s, prior, ranks = self.source, self._prior, self._phase.ranks
        if ranks is not None:
            return self._shared(x, Observation(x, self._eps, ranks, self._phase.empty))
        if prior == 0 or s.running_mean is None or s.running_var is None:
            if x.numel() < MANY or not by_planes(x):
                return batch_norm(x, s)
            mean, std, seen = self.of_batch(x)  # torch's train mode measures several times as slowly
            return tbr(x, *self._affine, mean, std, self._eps, seen)  # with train-mode batch norm's gradient
        return eval_norm(x, *self._affine, *self._with_prior(x, s.running_mean, s.running_var))

    def used(self, x: Tensor) -> Used | None:
        """Return what a compiled model normalises with."""
        s = self.source
        if self._phase.now == "source":
            fixed = self._measured_source(x)
        elif self._prior == 0 or s.running_mean is None or s.running_var is None:
            fixed = None
        else:
            fixed = self._with_prior(x, s.running_mean, s.running_var)
        return None if fixed is None else (*fixed, None)

    def _with_prior(self, x: Tensor, source_mean: Tensor, source_var: Tensor) -> tuple[Tensor, Tensor]:
        prior = self._prior
        share = prior / (prior + x.shape[0])  # N / (N + n), Schneider et al. 2020
        mean, var = batch_moments(x)
        mean = torch.lerp(mean, source_mean.to(mean.dtype), share)
        var = torch.lerp(var, source_var.to(var.dtype), share)
        return mean, (var + self._eps).sqrt()

    def _shared(self, x: Tensor, seen: Observation) -> Tensor:
        """Train-mode batch norm over all ranks: TBR whose averages are the batch's statistics."""
        mean, std = seen.statistics
        s, prior = self.source, self._prior
        if prior > 0 and s.running_mean is not None and s.running_var is not None:
            assert seen.samples is not None
            share = prior / (prior + seen.samples)
            mean = torch.lerp(mean, s.running_mean.to(mean.dtype), share)
            std = (torch.lerp(std**2 - s.eps, s.running_var.to(mean.dtype), share) + s.eps).sqrt()
        return tbr(x, *self._affine, mean, std, self._eps, seen)

    def baked(self) -> tuple[Tensor, Tensor] | None:
        """A plain layer without statistics uses the batch's own in eval mode too."""
        return None
