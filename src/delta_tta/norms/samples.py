"""The moments of each sample, with their gradient, normalising with them, and averages that they move."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..tensors import at_least_float32
from .moving import MovingAverage
from .statistics import moments_of_samples


def sample_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance of each sample and channel over space, each (B, C), with gradient.

    Features without space, (B, C), are their own means, and their variances are 0.
    """
    if x.dim() == 2:
        wide = at_least_float32(x)
        return wide, torch.zeros_like(wide)
    if torch.is_grad_enabled() and x.requires_grad and not torch.compiler.is_compiling():
        pair: tuple[Tensor, Tensor] = _Moments.apply(x)  # type: ignore[no-untyped-call]  # torch does not type it
        return pair
    if torch.compiler.is_compiling():
        var, mean = torch.var_mean(at_least_float32(x), [*range(2, x.dim())], correction=0)
        return mean, var
    return moments_of_samples(x)


class _Moments(torch.autograd.Function):
    """∂m/∂v = 1/n and ∂s²/∂v = 2 (v − m)/n, in one pass over the features."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        """Measure."""
        mean, var = moments_of_samples(x)
        ctx.save_for_backward(x, mean)
        return mean, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_mean: Tensor, of_var: Tensor) -> Tensor:
        """Return (g_m + 2 g_s (v − m)) / n."""
        x, mean = ctx.saved_tensors
        slope = of_var * (2 * x.shape[0] * x.shape[1] / x.numel())
        shift = of_mean * (x.shape[0] * x.shape[1] / x.numel()) - slope * mean
        shape = [*mean.shape, *[1] * (x.dim() - 2)]
        found: Tensor = torch.addcmul(shift.view(shape), slope.view(shape), x.to(mean.dtype))
        return found.to(x.dtype)


def normalised(x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    """Return γ (x − μ) / sqrt(σ² + eps) + β in the type of x; gradients reach all arguments.

    Args:
        x: features, (B, C, …).
        weight: γ, (C,); None for 1.
        bias: β, (C,); None for 0.
        mean: μ, (C,) for all samples or (B, C) for each.
        var: σ², likewise.
        eps: of the layer.
    """
    scale = (var + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    shift = -mean * scale if bias is None else torch.addcmul(bias.to(mean.dtype), mean, scale, value=-1)
    shape = [-1, x.shape[1], *[1] * (x.dim() - 2)]
    return torch.addcmul(shift.view(shape), x.to(mean.dtype), scale.view(shape)).to(x.dtype)


class MovedBySamples(MovingAverage):
    """Base of averages that single samples move, each by its own mean and variance over space.

    `_seen` has a tuple for each run of the layer that was not committed; it ends with the samples' mean and variance.
    """

    @property
    def settled(self) -> bool:
        """It starts from the source."""
        return True

    @property
    def seen(self) -> tuple[Tensor, Tensor] | None:
        """μ_b and σ_b of what was observed first."""
        if not self._seen:
            return None
        *_, mean, var = self._seen[0]
        return mean.mean(0), (var.mean(0) + mean.var(0, correction=0) + self._eps).sqrt()

    def discard(self) -> None:
        """Forget what was observed and not committed."""
        self._seen: list[tuple[Tensor, ...]] = []
