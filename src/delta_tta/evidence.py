"""How well a model's answers foretell each other: evidence, without labels, of which answers are right.

Two samples that show the same class should get the same answer. Let p and p' be the answers to them, q the mean
answer, and s the probability that they share a class. Then Z = 1 + s (Σ_y p(y) p'(y) / q(y) − 1) is the likelihood of
the pair over that of two unrelated samples. Right answers make Z large. Answers that are wrong in different ways make
it small, and so does a model that always says the same, because q grows with it.

Nobody knows s, nor how far a model's confidence can be believed. So Z is taken for a few values of s and of a
temperature T, with p^(1/T) renormalised as the answer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

STAYS = np.array([0.5, 0.8, 0.93, 0.98], dtype=np.float32)
TEMPERATURES = np.array([1.0, 1.6, 2.5], dtype=np.float32)
MEMORY, MEMORY_OF_ANSWERS = 256, 2000
"""Samples over which evidence, and what answers are like on average, are forgotten (to 1/e)."""
LONGEST = 64
"""Batches between two comparisons of candidates, at most."""
TINY = 1e-30


def until_next(batches: int) -> int:
    """Return after how many batches to look again: at first every batch, later after a quarter as many as so far."""
    return max(1, min(LONGEST, batches // 4))


def tempered(log_p: Array) -> Array:
    """Return p^(1/T), renormalised, for each T: (T, B, K)."""
    scaled = log_p[None] / TEMPERATURES[:, None, None]
    p: Array = np.exp(scaled - scaled.max(2, keepdims=True))
    p /= p.sum(2, keepdims=True)
    return p


def of_order(p: Array, q: Array) -> float:
    """Return the evidence, in nats, that neighbours in time share their class, over one batch by itself.

    Args:
        p: of the samples in the order of time, at each temperature, (T, B, K).
        q: mean answers at each temperature, (T, K).
    """
    q = q[:, None]
    _, z = forward_filters(likelihood(p, q), q, np.repeat(q, len(STAYS), 1))
    return _mean_over_grid(np.log(z).sum(0))


def of_pairs(p: Array, other: Array, q: Array) -> float:
    """Return the evidence, in nats, that the two answers to each sample are about the same class.

    Args:
        p: one answer to each sample, at each temperature, (T, B, K).
        other: the other.
        q: mean answers at each temperature, (T, K).
    """
    alike = np.einsum("tbk,tbk->tb", likelihood(p, q[:, None]), other)
    return _mean_over_grid(np.log(1 + STAYS * (alike[..., None] - 1)).sum(1))


def _mean_over_grid(evidence: Array) -> float:
    """Return the logarithm of the mean likelihood over the grid, (T, S), and over unrelated samples (0 nats)."""
    found = np.append(evidence, 0.0)
    return float(found.max() + np.log(np.exp(found - found.max()).mean()))


def likelihood(p: Array, q: Array) -> Array:
    """Return p / q."""
    return np.divide(p, np.maximum(q, TINY), dtype=np.float32)


def forward_filters(ratio: Array, q: Array, belief: Array) -> tuple[Array, Array]:
    """Run a filter for each T and s over the samples of one stream; return the last beliefs, (T, S, K), and all Z.

    Args:
        ratio: p / q of the samples, (T, B, K).
        q: for all of them or for each, (T, 1 or B, K).
        belief: before the first.
    """
    belief, last = belief.copy(), np.ones(belief.shape[:2], np.float32)
    z = np.empty((ratio.shape[1], *last.shape), np.float32)
    for t in range(ratio.shape[1]):
        if t < q.shape[1]:
            leaves = (1 - STAYS)[:, None] * q[:, None, t]  # (T, S, K)
        belief *= (STAYS / last)[..., None]
        belief += leaves
        belief *= ratio[:, None, t]
        last = belief.sum(2, out=z[t])  # Z; the belief is divided by it in the next step
    belief /= last[..., None]
    return belief, z
