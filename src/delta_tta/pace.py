"""How far moving averages follow a batch: the less, the fewer classes it shows and the more they know already.

A batch of one class has the statistics of that class, not of the stream. Averages that follow it at full speed forget
the rest, and answer worse than the source did. Whether a batch is like that can be seen from the predictions: with p_i
for the probabilities of sample i and f for the mean of all predictions so far,

    s = mean over pairs i ≠ j of p_i · p_j,    pace = min(1, Σ f² / s),

s being the chance that two samples of the batch are of one class, and Σ f² the chance that two samples of the stream
are. Shuffled streams, balanced or not, have pace 1; a batch of one class out of ten that take turns, 0.1. f starts
uniform, as if `PRIOR` samples of all classes had been seen.

The averages are an estimate like any other, with a doubt u: the variance of their error, with that of a single sample's
statistics as the unit. A batch of B samples is worth b independent ones,

    1 / b = 1 / B + KINSHIP · e,    e = max(0, (s − Σ f²) / (1 − Σ f²)),

and moves the averages as far as their doubt and its worth say, but at least at the paper's rate times the pace, as the
stream may drift; less where a batch has fewer than `WHOLE` samples, or its noise would stay in the averages:

    rate = max(u b / (1 + u b), (1 − α) · pace · min(1, B / WHOLE)),    then  u ← u / (1 + u b).

They start between the source and the first batch (init="auto"), by u b / (1 + u b) times the pace. How much the source
is to be doubted is what the first batch is off beyond its own error: u = max(0, d / v − 1 / b), with d its distance
from the source's statistics and v the variance of its samples' (`norms/shift.py`). Where nothing has shifted, the
source stays.

Ours, not the paper's; one step of a Kalman filter, and the start is the shrinkage of James and Stein.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .words import State

PRIOR = 256.0
HORIZON = 3200.0
"""Samples; what the stream showed longer ago fades from f."""
KINSHIP = 2.0
"""The variance between classes, with that of samples as the unit; chosen on validation corruptions."""
LEAST = 32.0
"""Samples; the averages are worth at least as many once they have started. Chosen likewise."""
WHOLE = 128.0
"""Samples of a batch that the averages follow by the whole of 1 − α. Chosen likewise; the paper has 64 to 200."""


class Look(NamedTuple):
    """What the predictions of a batch tell of its classes."""

    size: int
    pace: float
    kinship: float

    @property
    def worth(self) -> float:
        """b: how many independent samples would tell as much."""
        return 1 / (1 / self.size + KINSHIP * self.kinship)

    def best(self, other: Look) -> Look:
        """Of two looks at the same batch, the one that saw more classes."""
        return max(self, other, key=lambda look: look.pace)


def look(p: Tensor, memory: State) -> Look:
    """Look at probabilities p, (B, K); of a single sample nothing can be said."""
    size, classes = p.shape
    if size < 2:
        return Look(max(size, 1), 1.0, 0.0)
    pairs = float(p.sum(0).square().sum() - p.square().sum())
    same = max(pairs / (size * (size - 1)), torch.finfo(p.dtype).tiny)
    usual = float(memory["f"].square().sum()) if memory else 1 / classes
    kinship = (same - usual) / (1 - usual) if usual < 1 else 0.0
    return Look(size, min(1.0, usual / same), min(max(kinship, 0.0), 1.0))


def start(seen: Look, shift: float) -> tuple[float, float]:
    """Return how far the averages start from the first batch, and their doubt then.

    Args:
        seen: the batch.
        shift: d / v, see above.
    """
    doubt = max(0.0, shift - 1 / seen.worth)
    return seen.pace * _gain(doubt, seen), min(_after(doubt, seen), 1 / LEAST)


def rate(seen: Look, doubt: float, alpha: float) -> float:
    """Return how far the averages move towards the batch, 0 to 1."""
    return max(_gain(doubt, seen), (1 - alpha) * seen.pace * min(1.0, seen.size / WHOLE))


def next_memory(p: Tensor, memory: State, seen: Look, doubt: float | None = None) -> State:
    """Return f and how many samples it holds, with this batch; and the doubt, as given or as the batch lessens it."""
    size, classes = p.shape
    f = memory["f"] if memory else p.new_full((classes,), 1 / classes)
    count = memory["seen"] if memory else p.new_tensor(PRIOR)
    share = size / (count + size)
    return {
        "f": torch.lerp(f, p.mean(0).to(f), share.to(f)),
        "seen": (count + size).clamp(max=HORIZON),
        "doubt": count.new_tensor(_after(float(memory["doubt"]), seen) if doubt is None else doubt),
    }


def _gain(doubt: float, seen: Look) -> float:
    return doubt * seen.worth / (1 + doubt * seen.worth)


def _after(doubt: float, seen: Look) -> float:
    return doubt / (1 + doubt * seen.worth)
