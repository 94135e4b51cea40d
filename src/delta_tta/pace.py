"""How far moving averages follow a batch: the less, the fewer classes it shows compared with the stream so far.

A batch of one class has the statistics of that class, not of the stream. Averages that follow it at full speed forget
the rest, and answer worse than the source did. Whether a batch is like that can be seen from the predictions: with p_i
for the probabilities of sample i and f for the mean of all predictions so far,

    s = mean over pairs i ≠ j of p_i · p_j,    pace = min(1, Σ f² / s),

s being the chance that two samples of the batch are of one class, and Σ f² the chance that two samples of the stream
are. Shuffled streams, balanced or not, have pace 1; a batch of one class out of ten that take turns, 0.1. f starts
uniform, as if `PRIOR` samples of all classes had been seen. Ours, not the paper's.

The averages start from the first batch in the same measure, and for the rest from the source (init="auto").
"""

from __future__ import annotations

import torch
from torch import Tensor

from .words import State

PRIOR = 256.0
HORIZON = 3200.0
"""Samples; what the stream showed longer ago fades from f."""


def pace_of(p: Tensor, memory: State) -> float:
    """Return the pace of a batch with probabilities p, (B, K); 1 for a single sample, of which nothing can be said."""
    size, classes = p.shape
    if size < 2:
        return 1.0
    same = (p.sum(0).square().sum() - p.square().sum()) / (size * (size - 1))
    f = memory["f"].to(p) if memory else p.new_full((classes,), 1 / classes)
    return min(1.0, float(f.square().sum() / same.clamp(min=torch.finfo(p.dtype).tiny)))


def next_memory(p: Tensor, memory: State) -> State:
    """Return f and how many samples it holds, with this batch."""
    size, classes = p.shape
    f = memory["f"] if memory else p.new_full((classes,), 1 / classes)
    seen = memory["seen"] if memory else p.new_tensor(PRIOR)
    share = size / (seen + size)
    return {"f": torch.lerp(f, p.mean(0).to(f), share.to(f)), "seen": (seen + size).clamp(max=HORIZON)}
