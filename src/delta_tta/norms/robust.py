"""Robust batch norm of RoTTA (Yuan, Xie and Li 2023): moving statistics that start at the source's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..options import AlphaOptions
from ..registry import component
from ..tensors import at_least_float32
from .moving import MovingAverage
from .statistics import Observation, batch_moments
from .tbr import eval_norm


@component("rbn", "statistics", "moving statistics from the source on, with this batch in them", alone=True, part=True)
class RobustStatistics(MovingAverage):
    """μ ← α μ + (1−α) μ_b and likewise σ²; a batch is normalised with what it has moved them to.

    Gradients pass through the batch's part of both, as in the paper's own program. The paper's α = 0.05 is the share of
    the batch, here 1 − α.
    """

    Options: ClassVar[type | None] = AlphaOptions
    defaults: ClassVar[Mapping[str, Any]] = {"alpha": 0.95}
    synchronises = False
    looks_ahead = True

    def reset(self) -> None:
        """Start from the source; a layer without statistics starts from the first batch."""
        self.discard()
        self.mean, self.std = self.inherited() or (None, None)

    def observe(self, x: Tensor) -> Tensor:
        """Normalise with the averages as this batch moves them."""
        seen = self._observation(x)
        y = self._mixed(x, seen)
        if self._current() is None:
            self._pending.start = self._pending.start or seen.statistics
        self._pending.seen.append(seen)
        return y

    def replay(self, x: Tensor) -> Tensor:
        """Normalise as `observe` did."""
        return self._mixed(x, self._observation(x))

    def _mixed(self, x: Tensor, seen: Observation) -> Tensor:
        if torch.is_grad_enabled():
            var, mean = torch.var_mean(at_least_float32(x), [d for d in range(x.dim()) if d != 1], correction=0)
        else:
            mean, var = batch_moments(x)  # the same, faster
        var = var + self._eps
        seen.note(mean.detach(), var.detach().sqrt())
        current = self._current() or self._pending.start
        if current is not None:
            kept = self.alpha
            mean, var = torch.lerp(mean, current[0], kept), torch.lerp(var, current[1] ** 2, kept)
        if not torch.is_grad_enabled():
            return eval_norm(x, *self._affine, mean, var.sqrt())
        shape = [1, -1, *[1] * (x.dim() - 2)]
        return normalised(x, mean.view(shape), var.view(shape), *self._affine)

    def moved(self) -> tuple[Tensor, Tensor] | None:
        """Return mean and standard deviation as what was observed moves them."""
        current = self._current() or self._pending.start
        if current is None:
            return None
        mean, var = current[0].clone(), current[1] ** 2
        for seen in self._pending.seen:
            mean.lerp_(seen.statistics[0], self.rate)
            var.lerp_(seen.statistics[1] ** 2, self.rate)
        return mean, var.sqrt_()

    @property
    def averages(self) -> tuple[Tensor, Tensor] | None:
        """Mean and standard deviation as they are, if there are any."""
        return self._current()

    @property
    def rate(self) -> float:
        """How far a batch moves the averages."""
        return 1 - self.alpha

    def commit(self) -> None:
        """Move the averages."""
        if self._pending.seen:
            self.mean, self.std = self.moved() or (None, None)
        self.discard()


def normalised(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return γ (x − μ) / √var + β in the type of x, with gradients to μ and var; both broadcast to x."""
    shape = [1, -1, *[1] * (x.dim() - 2)]
    scale = var.rsqrt() if weight is None else var.rsqrt() * weight.to(var.dtype).view(shape)
    shift = -mean * scale if bias is None else bias.to(var.dtype).view(shape) - mean * scale
    return torch.addcmul(shift, at_least_float32(x), scale).to(x.dtype)  # one pass over the features
