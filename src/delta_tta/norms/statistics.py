"""Per-channel mean and standard deviation of a batch of features."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ..distributed import Ranks, merged_moments
from ..errors import ModelError
from ..tensors import at_least_float32, changed_since, changes, overwritten

_fast_moments = getattr(torch.ops.aten, "batch_norm_update_stats", None)

MANY_VALUES = 64
"""Per sample and channel: from here on GroupNorm's operator measures features faster than BatchNorm's on a CPU."""
PART = 2**19
"""Values measured at a time, so that what is written on the way, and wanted by nobody, stays in a cache."""


def batch_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance over batch and space, each (C,), in float32 or better."""
    if not x.is_cuda:
        x = at_least_float32(x)  # off CUDA the operators below would round their results to x's own type
    if by_planes(x):
        return _of_all(*_moments_of_planes(x))
    if _fast_moments is not None and (x.is_cpu or x.is_cuda) and not torch.compiler.is_compiling():
        # private, but far quicker on a CPU than torch.var_mean: the operator under BatchNorm itself; the compiler
        # cannot see into it
        mean, var = _fast_moments(x, None, None, 0.0)
        return mean, var
    var, mean = torch.var_mean(x, [d for d in range(x.dim()) if d != 1], correction=0)
    return mean, var


def _of_all(means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance, each (C,), from those of samples that have as many values each, (B, C)."""
    mean = means.mean(0)
    apart = means - mean
    return mean, torch.addcmul(variances, apart, apart).mean(0)


def sample_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the batch's mean μ, (C,), and of each sample the means of v − μ and of (v − μ)², each (B, C).

    In float32 or better. The batch's variance is the mean of the last over the samples.
    """
    means, variances = moments_of_samples(x)
    mean = means.mean(0)
    apart = means - mean
    return mean, apart, torch.addcmul(variances, apart, apart)


def moments_of_samples(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance of each sample and channel over space, each (B, C), in float32 or better."""
    if not x.is_cuda:
        x = at_least_float32(x)
    x = x.reshape(*x.shape[:2], -1)  # (B, C, values)
    if by_planes(x):
        return _moments_of_planes(x)
    if torch.compiler.is_compiling():
        return _moments_by_terms(x)
    if not x.is_contiguous():
        parts = x.split(max(1, PART // x[0].numel())) if x.is_cpu else (x,)
        means, variances = (torch.cat(some) for some in zip(*map(_moments_by_terms, parts), strict=True))
        return means, variances
    # one pass: a single sample, whose channels are those of all samples
    means, variances = (t.view(x.shape[:2]) for t in batch_moments(x.view(1, -1, x.shape[2])))
    return means, variances


def _moments_by_terms(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance over the last dimension, each (B, C), with plain operators."""
    means = x.mean(2, dtype=torch.promote_types(x.dtype, torch.float32))
    return means, (x - means.unsqueeze(2)).square_().mean(2)


def by_planes(x: Tensor) -> bool:
    """Whether to measure x, (B, C, …), channel by channel of each sample."""
    values = x.numel() // (x.shape[0] * x.shape[1]) if x.numel() else 0
    return values >= MANY_VALUES and x.is_cpu and x.is_contiguous() and not torch.compiler.is_compiling()


def _moments_of_planes(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same, faster, for values that lie side by side on a CPU."""
    samples, channels = x.shape[:2]
    values = x.numel() // (samples * channels)
    most = max(1, PART // (channels * values))
    parts = (x.detach(),) if samples <= most else x.detach().split(most)
    found = [
        torch.native_group_norm(part, None, None, len(part), channels, values, channels, 0.0)[1:] for part in parts
    ]
    means, scales = found[0] if len(found) == 1 else (torch.cat(some) for some in zip(*found, strict=True))
    return means, scales.pow(-2)  # from 1 / σ, infinite where σ is 0


class Observation:
    """The statistics of one input of one layer, measured when first asked for.

    Asking late is what makes the answer quick: the caller waits for a plain forward, and the features, which
    the backward pass needs anyway, are measured there. With `ranks` they are the statistics of all ranks' features.
    """

    def __init__(self, x: Tensor, eps: float, ranks: Ranks | None = None, empty: bool = False, layer: str = "") -> None:
        self._x: Tensor | None = x.detach()
        self._layer = layer
        self._changes = changes(x)
        self.eps = eps
        self.ranks, self.empty = ranks, empty
        self._statistics: tuple[Tensor, Tensor] | None = None
        self.by_sample: tuple[Tensor, Tensor] | None = None  # measured, and to be merged by `merge`
        self.samples: Tensor | None = None  # of all ranks together, once measured, as are the values per channel
        self.values: Tensor | None = None

    @property
    def statistics(self) -> tuple[Tensor, Tensor]:
        """μ_b and σ_b = sqrt(biased variance + eps), each (C,)."""
        if self.by_sample is not None:
            merge([self])
        if self._statistics is None:
            assert self._x is not None
            self.check()
            if self.ranks is None:
                mean, var = self.moments(self._x)
            else:
                mean, var, _ = self.shared(self._x)
            self.note(mean, (var + self.eps).sqrt_())
        assert self._statistics is not None
        return self._statistics

    def measure(self) -> None:
        """Measure now, so that the features may go."""
        x = self._x
        if self.by_sample is not None:
            return
        if x is None or self.ranks is not None or type(self).moments is not Observation.moments or not by_planes(x):
            _ = self.statistics
        else:
            self.check()
            self.by_sample, self._x = _moments_of_planes(at_least_float32(x)), None

    def check(self) -> None:
        """Raise if the features were changed before they were measured."""
        if self._x is not None and changed_since(self._x, self._changes):
            raise ModelError(overwritten(self._layer))

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Measure this rank's mean and variance, each (C,)."""
        return batch_moments(x)

    def look(self, x: Tensor) -> None:
        """Take from the features what `note` does not tell; nothing here."""

    def shared(self, x: Tensor, *sums: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean and variance over all ranks, and everybody's means and `sums` (each (C,)), (R, 1 + sums, C)."""
        assert self.ranks is not None
        mean, var = self.moments(x)
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
        self._statistics, self._x, self.by_sample = (mean, std), None, None


def merge(observations: Iterable[Observation]) -> None:
    """Calculate the statistics of all that are measured, in a few calls for all layers together."""
    alike: dict[tuple[float, int, torch.dtype], list[Observation]] = {}
    for one in observations:
        if one.by_sample is not None:
            means = one.by_sample[0]
            alike.setdefault((one.eps, len(means), means.dtype), []).append(one)
    for (eps, *_), group in alike.items():
        found = [one.by_sample for one in group if one.by_sample is not None]
        mean, var = _of_all(*(torch.cat(some, 1) for some in zip(*found, strict=True)))
        channels = [means.shape[1] for means, _ in found]
        for one, *pair in zip(group, mean.split(channels), var.add_(eps).sqrt_().split(channels), strict=True):
            one.note(*pair)
