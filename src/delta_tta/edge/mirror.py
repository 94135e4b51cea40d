"""Answers averaged with those to mirror images, in numpy; `postprocess/mirror.py` explains them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..evidence import MEMORY_OF_ANSWERS, Array
from ..rules.mirror import counts_after, weights
from .images import log_softmax, mirror_images
from .network import Images


@dataclass(frozen=True)
class Agreement:
    """Σ p p' and Σ p² of each class, (K,), and when to mirror a whole batch again."""

    agreed: Array
    weighed: Array
    batches: int
    left: int


def averaged(
    x: Images, logits: Array, before: Agreement | None, run: Callable[[Images], Array]
) -> tuple[Array, Agreement | None]:
    """Return the averaged logits, (B, K), and what is known after this batch.

    Args:
        x: the batch.
        logits: its answers, (B, K).
        before: what was known; None: nothing.
        run: answers other images.
    """
    mirrored = mirror_images(x)
    if mirrored is None:
        return logits, before
    log_p = log_softmax(logits)
    sure = log_p.max(1)
    middle = (len(sure) + 1) // 2 - 1
    unsure = sure <= np.partition(np.where(np.isnan(sure), np.inf, sure), middle)[middle]
    whole = before is None or before.left == 0
    rows = np.ones_like(unsure) if whole else unsure
    if not rows.any():  # no answer is finite
        return logits, before
    own, other = log_p[rows], log_softmax(run(mirrored[rows]))
    after = _after(before, own, other, whole)
    if not after.weighed.any():
        return logits, after
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.log(weights(after.agreed, after.weighed)[own.argmax(1)])[:, None]
        mean = np.logaddexp(own, other + weight) - np.logaddexp(np.float32(0), weight)
        change = mean - own
    change[~(np.isfinite(own) & np.isfinite(mean) & unsure[rows][:, None])] = 0
    answers = logits.copy()
    answers[rows] += change
    return answers, after


def _after(before: Agreement | None, own: Array, other: Array, whole: bool) -> Agreement:
    """Return what is known after a batch; only whole ones count, as those are no choice."""
    batches, left = (0, 0) if before is None else (before.batches, before.left)
    counts = counts_after(batches, left, whole)
    if not whole and before is not None:
        return Agreement(before.agreed, before.weighed, *counts)
    with np.errstate(invalid="ignore"):
        answered = np.isfinite((own + other).max(1, keepdims=True))
    p, mirrored = (np.where(answered, np.exp(one), np.float32(0)) for one in (own, other))
    agreed, weighed = (p * mirrored).sum(0), (p * p).sum(0)
    if before is not None:
        keep = np.exp(np.float32(-len(p) / MEMORY_OF_ANSWERS))
        agreed, weighed = keep * before.agreed + agreed, keep * before.weighed + weighed
    return Agreement(agreed, weighed, *counts)
