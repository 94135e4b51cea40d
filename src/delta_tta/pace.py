"""How far moving averages follow a batch: the less, the fewer classes it shows and the more they know already.

A batch of one class has the statistics of that class, not of the stream. Averages that follow it at full speed forget
the rest, and answer worse than the source did. Whether a batch is like that can be seen from the predictions: with p_i
for the probabilities of sample i and f for the mean of all predictions so far,

    s = mean over pairs i ≠ j of p_i · p_j,    pace = min(1, r / s),    r = max(Σ f², 1 / MANY),

s being the chance that two samples of the batch are of one class, and Σ f² the chance that two samples of the stream
are. Shuffled streams, balanced or not, have pace 1; a batch of one class out of ten that take turns, 0.1. f starts
uniform, as if `PRIOR` samples of all classes had been seen. `MANY` classes in a batch are as good as all: of a hundred
a model that fails names some too often, and that is not the stream's doing.

The averages are an estimate like any other, with a doubt u: the variance of their error, with that of a single sample's
statistics as the unit. A batch of B samples is worth b independent ones,

    1 / b = 1 / B + KINSHIP · e,    e = max(0, (s − r) / (1 − r)),

and moves the averages as far as their doubt and its worth say, but at least at the paper's rate times the pace, as the
stream may drift; less where a batch has fewer than `WHOLE` samples, or its noise would stay in the averages:

    rate = max(u b / (1 + u b), (1 − α) · pace · min(1, B / WHOLE)),    then  u ← u / (1 + u b).

They start between the source and the first batch (init="auto"), by u b / (1 + u b) times the pace. How much the source
is to be doubted is what the first batch is off beyond its own error: u = max(0, d / v − 1 / b − 1 / B), with d its
distance from the source's statistics and v the variance of its samples' (`norms/shift.py`); by chance it may be off by
more than it should, hence the last term. Where nothing has shifted, the source stays.

Averages over an imbalanced stream do not become right however many batches they hold: they are those of its frequent
classes, and the source's are of all. So they leave the source only as far as a shift was seen that classes do not
explain. They move towards source + reach · (batch − source), with

    reach = h / (h + KINSHIP · i),    i = max(0, (Σ f̂² − 1 / K) / (1 − 1 / K) − 1 / n),

f̂ being f without what it started from, n the samples in it, and h the largest shift so far: u at the start, then the
mean over about `SMOOTH` samples of d / v − 1 / B − KINSHIP · (e as it were with f uniform). Reach is 1 where classes
are balanced, nearly 1 under a strong shift, and 0 where an imbalanced stream has not shifted.

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
MANY = 16.0
"""Classes. Chosen likewise, with 100 of them."""
SMOOTH = 256.0
NUMBERS = ("seen", "prior", "doubt", "spread", "shift", "farthest")
"""What is remembered besides f."""
UNKNOWN = 1e9
"""A shift so far that nothing of the source is left in doubt."""


class Look(NamedTuple):
    """What the predictions of a batch tell of its classes; `alike` is the kinship where f is uniform."""

    size: int
    pace: float
    kinship: float
    alike: float = 0.0

    @property
    def worth(self) -> float:
        """b: how many independent samples would tell as much."""
        return 1 / (1 / self.size + KINSHIP * self.kinship)

    def best(self, other: Look) -> Look:
        """Of two looks at the same batch, the one that saw more classes."""
        return max(self, other, key=lambda look: look.pace)


class Start(NamedTuple):
    """Where the averages start: how far from the first batch, with which doubt, and how v and h begin."""

    share: float
    doubt: float
    spread: float
    shift: float

    def at_source(self) -> Start:
        """Start at the source instead."""
        return self._replace(share=0.0, doubt=0.0)


def look(p: Tensor, memory: State) -> Look:
    """Look at probabilities p, (B, K); of a single sample nothing can be said."""
    size, classes = p.shape
    if size < 2:
        return Look(max(size, 1), 1.0, 0.0)
    pairs = float(p.sum(0).square().sum() - p.square().sum())
    same = max(pairs / (size * (size - 1)), torch.finfo(p.dtype).tiny)
    even = max(1 / classes, 1 / MANY)
    usual = max(float(memory["f"].square().sum()), 1 / MANY) if memory else even
    return Look(size, min(1.0, usual / same), _beyond(same, usual), _beyond(same, even))


def start(seen: Look, spread: float, distance: float) -> Start:
    """Start from a first batch, given its v and d, see above."""
    shift = max(0.0, distance / spread - 1 / seen.worth - 1 / seen.size) if spread > 0 else UNKNOWN
    return Start(seen.pace * _gain(shift, seen), min(_after(shift, seen), 1 / LEAST), spread, shift)


def unmeasured(seen: Look) -> Start:
    """Start from the first batch without a look at the source."""
    return start(seen, 0.0, 0.0)


def rate(seen: Look, doubt: float, alpha: float) -> float:
    """Return how far the averages move towards the batch, 0 to 1."""
    return max(_gain(doubt, seen), (1 - alpha) * seen.pace * min(1.0, seen.size / WHOLE))


def first_memory(p: Tensor, begun: Start) -> State:
    """Return what is remembered after the first batch.

    That is f, how many samples it holds (`seen`), how much of it is still the prior, the doubt, v (`spread`), the shift
    of late and the farthest one, h.
    """
    values = (PRIOR, 1.0, begun.doubt, begun.spread, begun.shift, begun.shift)
    numbers = {key: p.new_tensor(value) for key, value in zip(NUMBERS, values, strict=True)}
    classes = p.shape[1]
    state = {"f": p.new_full((classes,), 1 / classes), **numbers}
    return state | _classes_seen(p, state)


def next_memory(p: Tensor, memory: State, seen: Look, distance: float) -> State:
    """Return it after one more batch, which is so far from the source."""
    shift, spread = float(memory["shift"]), float(memory["spread"])
    if spread > 0:
        now = distance / spread - 1 / seen.size - KINSHIP * seen.alike
        shift += (now - shift) * min(1.0, seen.size / SMOOTH)
    own = {"doubt": _after(float(memory["doubt"]), seen), "shift": shift}
    own["farthest"] = max(float(memory["farthest"]), shift)
    numbers = {key: memory["seen"].new_tensor(value) for key, value in own.items()}
    return memory | numbers | _classes_seen(p, memory)


def reach(memory: State) -> float:
    """Return how far from the source towards the batches the averages may go, 0 to 1."""
    f, prior, farthest = memory["f"], float(memory["prior"]), float(memory["farthest"])
    even, samples = 1 / len(f), float(memory["seen"]) * (1 - prior)
    if even == 1 or samples == 0 or farthest >= UNKNOWN:
        return 1.0
    apart = (float(f.square().sum()) - even) / ((1 - even) * (1 - prior) ** 2)
    away = KINSHIP * min(max(0.0, apart - 1 / samples), 1.0)
    return farthest / (farthest + away) if away > 0 else 1.0


def _classes_seen(p: Tensor, memory: State) -> State:
    f, count, share = memory["f"], memory["seen"], len(p) / (memory["seen"] + len(p))
    return {
        "f": torch.lerp(f, p.mean(0).to(f), share.to(f)),
        "seen": (count + len(p)).clamp(max=HORIZON),
        "prior": memory["prior"] * (1 - share),
    }


def _beyond(same: float, usual: float) -> float:
    """e: how much more often than usual two samples are of one class, 0 to 1."""
    return min(max((same - usual) / (1 - usual), 0.0), 1.0) if usual < 1 else 0.0


def _gain(doubt: float, seen: Look) -> float:
    return doubt * seen.worth / (1 + doubt * seen.worth)


def _after(doubt: float, seen: Look) -> float:
    return doubt / (1 + doubt * seen.worth)
