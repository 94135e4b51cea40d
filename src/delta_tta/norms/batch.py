"""Normalise with the statistics of each batch (BN adapt)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..registry import component
from .base import AdaptiveNorm, batch_norm
from .statistics import Observation, batch_moments
from .tbr import eval_norm, tbr


@component("bn", "statistics", "normalise with each batch's own statistics (BN adapt)", alone=True)
class BatchStatistics(AdaptiveNorm):
    """Batch statistics, mixed with the source's as if those came from `prior` more samples."""

    uses_alone = ("prior",)
    per_batch = True

    def frozen(self, x: Tensor) -> Tensor:
        """Normalise with the batch's statistics; there is nothing to remember."""
        s, prior, ranks = self.source, self.settings.prior, self._phase.ranks
        if ranks is not None:
            return self._shared(x, Observation(x, self._eps, ranks, self._phase.empty))
        if prior == 0 or s.running_mean is None or s.running_var is None:
            return batch_norm(x, s)
        share = prior / (prior + x.shape[0])  # N / (N + n), Schneider et al. 2020
        mean, var = batch_moments(x)
        mean = torch.lerp(mean, s.running_mean.to(mean.dtype), share)
        var = torch.lerp(var, s.running_var.to(var.dtype), share)
        return eval_norm(x, *self._affine, mean, (var + s.eps).sqrt())

    def _shared(self, x: Tensor, seen: Observation) -> Tensor:
        """Train-mode batch norm over all ranks: TBR whose averages are the batch's statistics."""
        mean, std = seen.statistics
        s, prior = self.source, self.settings.prior
        if prior > 0 and s.running_mean is not None and s.running_var is not None:
            assert seen.samples is not None
            share = prior / (prior + seen.samples)
            mean = torch.lerp(mean, s.running_mean.to(mean.dtype), share)
            std = (torch.lerp(std**2 - s.eps, s.running_var.to(mean.dtype), share) + s.eps).sqrt()
        return tbr(x, *self._affine, mean, std, self._eps, seen)

    def baked(self) -> tuple[Tensor, Tensor] | None:
        """A plain layer without statistics uses the batch's own in eval mode too."""
        return None
