"""Instance-aware batch norm (IABN) of NOTE (Gong et al. 2022): statistics corrected for each sample.

A sample's own mean and variance are compared with the layer's. As far as they differ by more than k standard errors,
which chance would hardly bring, the layer's statistics follow them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import SettingError
from ..options import Options
from ..registry import component
from ..settings import Settings
from ..tensors import at_least_float32
from .base import AdaptiveNorm, Phase, Tail
from .robust import RobustStatistics, normalised
from .statistics import batch_moments


@dataclass(frozen=True)
class InstanceOptions(Options):
    """Settings of IABN.

    Attributes:
        iabn_k: standard errors by which a sample may differ and be normalised as all others.
    """

    iabn_k: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.iabn_k < math.inf:
            raise SettingError(f"Expected setting `iabn_k` to be at least 0 and finite, but got {self.iabn_k!r}.")


def instance_aware(
    x: Tensor, mean: Tensor, var: Tensor, k: float, eps: float, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    """Return x, (B, C, …), normalised with the statistics of a layer, (C,), corrected for each sample.

    Args:
        x: features; without at least two values per sample and channel nothing is corrected.
        mean: μ.
        var: σ² + eps.
        k: of the soft shrinkage.
        eps: of the layer.
        weight: γ; None for 1.
        bias: β; None for 0.
    """
    values = x[0, 0].numel()
    shape = [1, -1, *[1] * (x.dim() - 2)]
    mean, var = mean.view(shape), var.view(shape)
    if values > 1:
        own_mean, own_var = own_moments(x)
        plain = var - eps
        mean, var = (
            mean + soft_shrink(own_mean - mean, k * (var / values).sqrt()),
            (plain + soft_shrink(own_var - plain, k * math.sqrt(2 / (values - 1)) * var)).relu() + eps,
        )
    return normalised(x, mean, var, weight, bias)


def own_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and unbiased variance of each sample and channel, (B, C, 1, …)."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        var, mean = torch.var_mean(at_least_float32(x), list(range(2, x.dim())), correction=1, keepdim=True)
        return mean, var
    flat = x.reshape(1, x.shape[0] * x.shape[1], -1)
    mean, var = batch_moments(flat)  # the same, faster: one sample, whose channels are those of all samples
    shape = [*x.shape[:2], *[1] * (x.dim() - 2)]
    return mean.view(shape), (var * (flat.shape[2] / (flat.shape[2] - 1))).view(shape)


def soft_shrink(x: Tensor, by: Tensor) -> Tensor:
    """Move x towards 0 by so much, but not past it."""
    return (x - by).relu() - (-x - by).relu()


@component("iabn", "statistics", "the source's statistics, corrected for each sample (IABN)", alone=True, part=True)
class InstanceAware(AdaptiveNorm):
    """The source's statistics, corrected for each sample; where a layer has none, those of the batch."""

    Options = InstanceOptions
    synchronises = False
    bakes = False

    def __init__(self, source: _BatchNorm, tail: Tail | None, settings: Settings, phase: Phase) -> None:
        super().__init__(source, tail, settings, phase)
        self._k = settings.options(InstanceOptions).iabn_k

    def frozen(self, x: Tensor) -> Tensor:
        """Normalise; there is nothing to remember."""
        mean, std = self.inherited() or unbiased(x, self._eps)
        return instance_aware(x, mean, std**2, self._k, self._eps, *self._affine)


class MovingInstanceAware(RobustStatistics):
    """NOTE's layers: learning, the batch's statistics, corrected for each sample; answering, their moving average.

    A layer whose source has no statistics keeps none and answers with the batch's, as the published program does.
    """

    def __init__(self, source: _BatchNorm, tail: Tail | None, settings: Settings, phase: Phase) -> None:
        super().__init__(source, tail, settings, phase)
        self._k = settings.options(InstanceOptions).iabn_k

    def frozen(self, x: Tensor) -> Tensor:
        """Normalise with the moving average, corrected for each sample."""
        mean, std = self._current() or unbiased(x, self._eps)
        return instance_aware(x, mean, std**2, self._k, self._eps, *self._affine)

    def observe(self, x: Tensor) -> Tensor:
        """Normalise with the batch's statistics, corrected for each sample."""
        seen = self._observation(x)
        mean, std = unbiased(x, self._eps)
        seen.note(mean.detach(), std.detach())
        if self._current() is not None:
            self._pending.seen.append(seen)
        return instance_aware(x, mean, std**2, self._k, self._eps, *self._affine)

    def replay(self, x: Tensor) -> Tensor:
        """Normalise as `observe` did."""
        mean, std = unbiased(x, self._eps)
        return instance_aware(x, mean, std**2, self._k, self._eps, *self._affine)


def unbiased(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the batch's mean and √(unbiased variance + eps), each (C,); of a single value the variance is 0."""
    dims = [d for d in range(x.dim()) if d != 1]
    several = x.numel() > x.shape[1]
    var, mean = torch.var_mean(at_least_float32(x), dims, correction=int(several))
    return mean, (var + eps).sqrt()
