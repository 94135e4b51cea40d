"""How far the features of a batch lie from the source's statistics, and how far its samples lie apart.

For every channel, with m_i and s_i the mean and deviation over space of sample i, and the batch's and the source's own:

    d = ((μ_b − μ_s)² + (σ_b − σ_s)²) / (σ_s² + σ_b²),    v = (Var_i m_i + Var_i s_i) / σ_b²,

summed over the channels of all layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from .statistics import sample_moments

if TYPE_CHECKING:
    from .base import AdaptiveNorm


class Shift(NamedTuple):
    """Of one batch.

    Attributes:
        distance: Σ d, of the batch from the source.
        variety: Σ v, of its samples around their mean; it does not depend on the source.
        channels: how many there are in the sums.
    """

    distance: float
    variety: float
    channels: int


def sums(x: Tensor, mean: Tensor, eps: float, counts: bool = True) -> Tensor:
    """Return what this rank's samples add to the sums over all samples, (6, C); around the source's mean."""
    centre, apart, squares = sample_moments(x)
    own = torch.addcmul(squares, apart, apart, value=-1).clamp_(min=0)  # (B, C): the variance of each sample
    exact = torch.float32 if x.device.type == "mps" else torch.float64  # samples that are alike would not seem so
    m, own = (apart + (centre - mean)).to(exact), own.to(exact)
    s = (own + eps).sqrt()
    parts = [torch.ones_like(m), m, m.square(), own + m.square(), s, s.square()]
    return torch.stack(parts).sum(1) * counts


def shift_of(layers: Sequence[AdaptiveNorm], totals: Sequence[Tensor | None]) -> Shift:
    """Return the shift, given the sums over all samples; zeros where no layer has statistics of the source."""
    far, varied, channels = 0.0, 0.0, 0
    for layer, total in zip(layers, totals, strict=True):
        inherited = layer.inherited()
        assert inherited is not None
        assert total is not None
        std = inherited[1].cpu().double()
        count, m, mm, q, s, ss = total.cpu().double()
        mean = m / count
        own = ((q / count - mean**2).clamp(min=0) + layer.source.eps).sqrt()
        between = (mm / count - mean**2 + ss / count - (s / count) ** 2).clamp(min=0) * count / (count - 1).clamp(min=1)
        far += distance((mean, own), (torch.zeros_like(mean), std))  # the sums are around the source's mean
        varied += float((between / own**2).sum())
        channels += len(std)
    return Shift(far, varied, channels)


def distance(one: tuple[Tensor, Tensor], source: tuple[Tensor, Tensor]) -> float:
    """Return Σ d, given means and standard deviations of all channels."""
    (mean, std), (source_mean, source_std) = one, source
    apart = (mean - source_mean).square() + (std - source_std).square()
    return float((apart / (std.square() + source_std.square())).sum())
