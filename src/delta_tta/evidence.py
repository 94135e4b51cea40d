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


def tempered(log_p: Array, temperatures: Array = TEMPERATURES) -> Array:
    """Return p^(1/T), renormalised, for each T: (T, B, K).

    Args:
        log_p: log-probabilities or logits of the samples, (B, K); a class may be at −∞.
        temperatures: T; those above 1 make answers less sure.

    Examples:
        >>> log_p = np.log(np.array([[0.8, 0.2]], np.float32))
        >>> tempered(log_p, np.array([1, 2], np.float32)).round(2)  # 2 : 1 are the roots of 4 : 1
        array([[[0.8 , 0.2 ]],
        <BLANKLINE>
               [[0.67, 0.33]]], dtype=float32)
    """
    below = log_p - log_p.max(1, keepdims=True)
    p: Array = below / temperatures[:, None, None]
    np.exp(p, out=p)
    p /= p.sum(2, keepdims=True)
    return p


def of_order(p: Array, q: Array) -> float:
    """Return the evidence, in nats, that neighbours in time share their class, over one batch by itself.

    Args:
        p: of the samples in the order of time, at each temperature, (T, B, K), as `tempered` returns them.
        q: mean answers at each temperature, for all samples or for each, (T, K) or (T, B, K).

    Examples:
        >>> sure = 4 * np.eye(2, dtype=np.float32)  # logits of either class
        >>> runs, turns = tempered(sure[[0] * 8 + [1] * 8]), tempered(sure[[0, 1] * 8])
        >>> [round(of_order(p, p.mean(1)), 1) for p in (runs, turns)]
        [5.2, -2.5]
    """
    q = q.reshape(len(q), -1, q.shape[-1])
    _, z = forward_filters(likelihood(p, q), q, np.repeat(q[:, :1], len(STAYS), 1))
    return _mean_over_grid(np.log(z).sum(0))


def of_pairs(p: Array, other: Array, q: Array) -> float:
    """Return the evidence, in nats, that the two answers to each sample are about the same class.

    Args:
        p: one answer to each sample, at each temperature, (T, B, K), as `tempered` returns them.
        other: the other.
        q: mean answers at each temperature, for all samples or for each, (T, K) or (T, B, K).

    Examples:
        >>> sure = 4 * np.eye(2, dtype=np.float32)  # logits of either class
        >>> p, alike, unlike = (tempered(sure[said]) for said in ([0, 1, 0, 1], [0, 1, 0, 1], [1, 0, 1, 0]))
        >>> [round(of_pairs(p, other, p.mean(1)), 1) for other in (alike, unlike)]
        [1.8, -1.8]
    """
    alike = np.einsum("tbk,tbk->tb", likelihood(p, q.reshape(len(q), -1, q.shape[-1])), other)
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

    At each sample, with a the belief before it, Z = Σ_y (s a(y) + (1 − s) q(y)) p(y) / q(y), and the belief after it is
    a ← (s a + (1 − s) q) p / q / Z. The values of s are `STAYS`, (S,).

    Args:
        ratio: p / q of the samples in the order of time, (T, B, K).
        q: mean answers, for all of them or for each, (T, 1 or B, K).
        belief: before the first, (T, S, K).

    Examples:
        >>> p = tempered(4 * np.eye(2, dtype=np.float32)[[0, 0, 0, 1]])
        >>> q = np.full((3, 1, 2), 0.5, np.float32)
        >>> belief, z = forward_filters(p / q, q, np.repeat(q, len(STAYS), 1))
        >>> belief.shape, z.shape
        ((3, 4, 2), (4, 3, 4))
        >>> z[:, 0, 0].round(2)  # T = 1, s = 0.5: the first tells nothing, two are as foreseen, one is not
        array([1.  , 1.46, 1.48, 0.52], dtype=float32)
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
