"""Per-channel mean and standard deviation of a batch of features."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..distributed import Ranks, merged_moments

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
    the backward pass needs anyway, are measured there. With `ranks` they are the statistics of all ranks' features.
    """

    def __init__(self, x: Tensor, eps: float, ranks: Ranks | None = None, empty: bool = False) -> None:
        self._x: Tensor | None = x.detach()
        self.eps = eps
        self.ranks, self.empty = ranks, empty
        self._statistics: tuple[Tensor, Tensor] | None = None
        self.samples: Tensor | None = None  # of all ranks together, once measured, as are the values per channel
        self.values: Tensor | None = None

    @property
    def statistics(self) -> tuple[Tensor, Tensor]:
        """μ_b and σ_b = sqrt(biased variance + eps), each (C,)."""
        if self._statistics is None:
            assert self._x is not None
            if self.ranks is None:
                mean, var = batch_moments(self._x)
            else:
                mean, var, _ = self.shared(self._x)
            self.note(mean, (var + self.eps).sqrt_())
        assert self._statistics is not None
        return self._statistics

    def shared(self, x: Tensor, *sums: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean and variance over all ranks, and everybody's means and `sums` (each (C,)), (R, 1 + sums, C)."""
        assert self.ranks is not None
        mean, var = batch_moments(x)
        values = x.numel() // x.shape[1]
        sent = torch.stack([torch.full_like(mean, n) for n in (values, x.shape[0])] + [mean, var * values, *sums])
        if self.empty:
            sent.zero_()
        everybody = self.ranks.gather(sent)
        counts = everybody[:, 0, :1]
        self.values, self.samples = everybody[:, :2, 0].sum(0).unbind(0)  # tensors: a GPU need not be waited for
        mean, var = merged_moments(counts, everybody[:, 2], everybody[:, 3])
        return mean, var, torch.cat([everybody[:, 2:3], everybody[:, 4:]], 1)

    def note(self, mean: Tensor, std: Tensor) -> None:
        """Take μ_b and σ_b as measured; the features may now be freed."""
        self._statistics, self._x = (mean, std), None
