"""Per-channel mean and standard deviation of a batch of features."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_fast_moments = getattr(torch.ops.aten, "batch_norm_update_stats", None)


def at_least_float32(x: Tensor) -> Tensor:
    """Return x, in float32 if it was in half precision: moving averages need the digits."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def follow(fn: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return x on the device and in the type that fn moves it to, but not in half precision."""
    moved = fn(x)
    return x.to(moved.device, torch.promote_types(moved.dtype, torch.float32))


def batch_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance over batch and space, each (C,), in float32 or better."""
    if not x.is_cuda:
        x = at_least_float32(x)  # off CUDA the operator below would round its results to x's own type
    if _fast_moments is not None and (x.is_cpu or x.is_cuda) and not torch.compiler.is_compiling():
        # private, but far quicker on a CPU than torch.var_mean: the operator under BatchNorm itself; the compiler
        # cannot see into it
        mean, var = _fast_moments(x, None, None, 0.0)
        return mean, var
    var, mean = torch.var_mean(x, [d for d in range(x.dim()) if d != 1], correction=0)
    return mean, var


class Observation:
    """The statistics of one input of one layer, measured when first asked for.

    Asking late is what makes the answer quick: the caller waits for a plain forward, and the features, which
    the backward pass needs anyway, are measured there.
    """

    def __init__(self, x: Tensor, eps: float) -> None:
        self._x: Tensor | None = x.detach()
        self.eps = eps
        self._statistics: tuple[Tensor, Tensor] | None = None

    @property
    def statistics(self) -> tuple[Tensor, Tensor]:
        """μ_b and σ_b = sqrt(biased variance + eps), each (C,)."""
        if self._statistics is None:
            assert self._x is not None
            mean, var = batch_moments(self._x)
            self.note(mean, (var + self.eps).sqrt_())
        assert self._statistics is not None
        return self._statistics

    def note(self, mean: Tensor, std: Tensor) -> None:
        """Take μ_b and σ_b as measured; the features may now be freed."""
        self._statistics, self._x = (mean, std), None
