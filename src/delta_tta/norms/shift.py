"""How far the features of a batch lie from the source's statistics, and how far its samples lie apart.

For every channel, with m_i and s_i the mean and deviation over space of sample i, and the batch's and the source's own:

    d = ((μ_b − μ_s)² + (σ_b − σ_s)²) / (σ_s² + σ_b²),    v = (Var_i m_i + Var_i s_i) / σ_b²,

summed over the channels of all layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..rules.shift import Shift, shift_of_sums, terms
from .statistics import sample_moments

if TYPE_CHECKING:
    from .base import AdaptiveNorm


def sums(x: Tensor, mean: Tensor, eps: float, counts: bool = True) -> Tensor:
    """Return what this rank's samples add to the sums over all samples, (6, C); around the source's mean."""
    centre, apart, squares = sample_moments(x)
    own = torch.addcmul(squares, apart, apart, value=-1).clamp_(min=0)  # (B, C): the variance of each sample
    exact = torch.float32 if x.device.type == "mps" else torch.float64  # samples that are alike would not seem so
    m, own = (apart + (centre - mean)).to(exact), own.to(exact)
    return torch.stack(terms(m, own, eps)).sum(1) * counts


def shift_of(layers: Sequence[AdaptiveNorm], totals: Sequence[Tensor | None]) -> Shift:
    """Return the shift, given the sums over all samples; zeros where no layer has statistics of the source."""
    found = [Shift(0.0, 0.0, 0)]
    for layer, total in zip(layers, totals, strict=True):
        inherited = layer.inherited()
        assert inherited is not None
        assert total is not None
        found.append(shift_of_sums(total.cpu().double(), inherited[1].cpu().double(), layer.source.eps))
    distances, varieties, channels = zip(*found, strict=True)
    return Shift(sum(distances), sum(varieties), sum(channels))
