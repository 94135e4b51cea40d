"""What changed between two stores of results: cell by cell, sample by sample, with paired tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .cell import Cell
from .store import Store

FLIPS = 10_000
"""Random signs of the test over all cells."""


@dataclass(frozen=True)
class Difference:
    """One cell in two stores.

    Attributes:
        cell: what was run.
        before: class-mean accuracy in the first store, percent; `after` in the second.
        after: see above.
        changed: predictions that differ; None where the streams do.
        gained: samples wrong before and right after; `lost` the other way round.
        lost: see above.
        p: of McNemar's exact test, that gains and losses are equally likely.
    """

    cell: Cell
    before: float
    after: float
    changed: int | None
    gained: int
    lost: int
    p: float

    @property
    def points(self) -> float:
        """By how much the second is better."""
        return self.after - self.before


@dataclass(frozen=True)
class Comparison:
    """Two stores: the cells both have, and how many only one has; `p` is of a sign-flip test over the cells."""

    cells: tuple[Difference, ...]
    only_before: int
    only_after: int
    mean: float
    error: float
    p: float


def differences(before: Store, after: Store) -> Comparison:
    """Compare what both have. Cells are matched by key, which says that everything but the program was the same."""
    first = {key: (cell, result) for key, cell, result in before.results()}
    second = {key: result for key, _, result in after.results()}
    found = []
    for key in (key for key in first if key in second):
        cell, one = first[key]
        changed, gained, lost = _samples(before, after, key)
        shares = (100 * one.class_mean_accuracy, 100 * second[key].class_mean_accuracy)
        found.append(Difference(cell, *shares, changed, gained, lost, mcnemar(gained, lost)))
    points = [one.points for one in found]
    mean = float(np.mean(points)) if points else math.nan
    alone = len(first) - len(found), len(second) - len(found)
    return Comparison(tuple(found), *alone, mean, standard_error(points), sign_flips(points))


def standard_error(values: Sequence[float]) -> float:
    """Return that of their mean; NaN where there are fewer than two."""
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def _samples(before: Store, after: Store, key: str) -> tuple[int | None, int, int]:
    one, two = before.trace(key), after.trace(key)
    if len(one.labels) != len(two.labels) or (one.labels != two.labels).any():
        return None, 0, 0
    gained = int((~one.correct & two.correct).sum())
    lost = int((one.correct & ~two.correct).sum())
    return int((one.predicted != two.predicted).sum()), gained, lost


def mcnemar(gained: int, lost: int) -> float:
    """Return the chance of a split at least as uneven if both ways were equally likely (two-sided, exact)."""
    total, least = gained + lost, min(gained, lost)
    tail = sum(math.comb(total, k) for k in range(least + 1))
    return min(1.0, float(Fraction(2 * tail, 2**total)))  # exact: 2**total may be too large for a float


def sign_flips(points: Sequence[float]) -> float:
    """Return the chance of a mean at least as far from 0 if the sign of each difference were a coin's (two-sided)."""
    values = np.asarray(points, dtype=np.float64)
    if not values.any():
        return 1.0
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (FLIPS, len(values)))
    beyond = np.abs(signs @ values) >= abs(values.sum()) - 1e-9
    return float((beyond.sum() + 1) / (FLIPS + 1))
