"""How far the features of a batch lie from the source's statistics, compared with how far its samples lie apart.

For every channel, with m_i and s_i the mean and deviation over space of sample i, and the batch's and the source's own:

    d = (μ_b − μ_s)² + (σ_b − σ_s)²,    v = Var_i m_i + Var_i s_i,    both over σ_s² + σ_b²;

the shift is Σ d / Σ v over the channels of all layers. A batch of B independent samples of the source has about 1 / B.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .statistics import sample_moments

if TYPE_CHECKING:
    from .layers import AdaptiveNorm

UNKNOWN = 1e9
"""So far that nothing of the source is left in doubt."""


def sums(x: Tensor, mean: Tensor, eps: float, counts: bool = True) -> Tensor:
    """Return what this rank's samples add to the sums over all samples, (6, C); around the source's mean."""
    centre, apart, squares = sample_moments(x)
    own = torch.addcmul(squares, apart, apart, value=-1).clamp_(min=0)  # (B, C): the variance of each sample
    m, s = apart + (centre - mean), (own + eps).sqrt()
    parts = [torch.ones_like(m), m, m.square(), own + m.square(), s, s.square()]
    return torch.stack(parts).sum(1) * counts


def shift(layers: Sequence[AdaptiveNorm], totals: Sequence[Tensor | None]) -> float:
    """Return the shift, given the sums over all samples; `UNKNOWN` where no layer has statistics of the source."""
    far = wide = 0.0
    for layer, total in zip(layers, totals, strict=True):
        inherited = layer.inherited()
        assert inherited is not None
        assert total is not None
        std = inherited[1].cpu().double()
        count, m, mm, q, s, ss = total.cpu().double()
        mean = m / count
        own = ((q / count - mean**2).clamp(min=0) + layer.source.eps).sqrt()
        between = (mm / count - mean**2 + ss / count - (s / count) ** 2).clamp(min=0) * count / (count - 1).clamp(min=1)
        unit = std**2 + own**2
        far += float(((mean**2 + (own - std) ** 2) / unit).sum())
        wide += float((between / unit).sum())
    return far / wide if wide > 0 else UNKNOWN
