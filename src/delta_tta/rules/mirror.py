"""How much mirror images count, and when whole batches are mirrored; `postprocess/mirror.py` has the formula."""

from __future__ import annotations

from typing import Any

from ..evidence import LONGEST, until_next

PRIOR = 10.0
"""How much Σ p(y)² a class must have seen to count by itself as much as all classes together."""


def weights(agreed: Any, weighed: Any) -> Any:
    """Return w of each class, (K,): its own, as far as it was seen, or that of all classes together.

    Args:
        agreed: Σ p p' of each class, an array of numpy or a tensor of torch, (K,).
        weighed: Σ p², (K,).
    """
    overall = agreed.sum() / weighed.sum()
    return ((agreed + PRIOR * overall) / (weighed + PRIOR)).clip(max=1)


def counts_after(batches: int, left: int, whole: bool) -> tuple[int, int]:
    """Return the number of batches, and how many are left until one is mirrored whole again.

    Args:
        batches: before this one.
        left: before this one.
        whole: whether this one was.
    """
    return min(batches + 1, 4 * LONGEST), until_next(batches) - 1 if whole else left - 1
