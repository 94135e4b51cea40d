"""Whether a new domain has begun: the sharpness of the images has left its usual range.

Nearly every change of weather, light, lens or sensor changes how much neighbouring pixels differ, and which classes are
in view changes that little. So the sharpness of a batch is the logarithm, by channel, of the standard deviation of the
second difference along the width. It needs no model and no label.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..evidence import LONGEST, TINY, Array

ROWS = 16
"""Of each image that are looked at, about."""
LEAST = 8
"""Batches of a domain that must have been met before another can be noticed."""
FAR = 4.0
"""Standard deviations between batches, in the root mean square over the channels, that a new domain lies off
(`benchmarks/domains.py` prints what lies within domains and at changes)."""
SPREAD = 0.08
"""What the standard deviation is taken for at least: a camera that stands still shows the same again and again, and
whatever then moves is no new domain. So sharpness must change by a factor of 1.38 (e^0.32)."""


def every_nth_row(height: int) -> int:
    """Return the step between the rows that are looked at."""
    return max(1, height // ROWS)


def sharpness_of_batch(moments: npt.NDArray[Any]) -> Array | None:
    """Return the sharpness of each channel, (C,); None where it is not finite.

    Args:
        moments: mean and mean square of the differences, of each sample and channel, in float64, (B, C, 2).
    """
    found = _logarithm(moments.mean(0)) if len(moments) else np.full(0, np.nan, np.float32)
    return found if len(found) and np.isfinite(found).all() else None


def sharpness_of_samples(moments: npt.NDArray[Any]) -> Array:
    """Return the sharpness of each sample over all its channels, (B,), from the same moments."""
    return _logarithm(moments.mean(1))


def _logarithm(moments: npt.NDArray[Any]) -> Array:
    """Return the logarithm of the standard deviation."""
    with np.errstate(invalid="ignore", over="ignore"):  # of values so large that their squares are infinite
        found: Array = np.log(np.maximum(moments[..., 1] - moments[..., 0] ** 2, TINY)).astype(np.float32) / 2
    return found


@dataclass(frozen=True)
class Domain:
    """Mean and variance of the sharpness over the batches of a domain, (C,) each."""

    batches: int = 0
    mean: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    variance: Array = field(default_factory=lambda: np.zeros(0, np.float32))

    def left_by(self, found: Array) -> bool:
        """Whether a batch of such sharpness is of another domain."""
        return self.batches >= LEAST and found.shape == self.mean.shape and self.distance(found) > FAR

    def distance(self, found: Array) -> float:
        """Return how many standard deviations it lies off."""
        off = (found - self.mean) ** 2 / (self.variance * (1 + 1 / self.batches) + SPREAD**2)
        return float(np.sqrt(off.mean()))

    def with_batch(self, found: Array) -> Domain:
        """Return the domain after one more batch; what lies more than LONGEST batches back is forgotten."""
        if found.shape != self.mean.shape:
            return Domain(1, found, np.zeros_like(found))
        n = min(self.batches + 1, LONGEST)
        apart = found - self.mean
        mean: Array = self.mean + apart / np.float32(n)
        squares: Array = self.variance * np.float32(max(n - 2, 0)) + apart * (found - mean)
        return Domain(n, mean, squares / np.float32(max(n - 1, 1)))

    def as_array(self) -> Array:
        """Return all of it, (3, C)."""
        return np.stack([np.full_like(self.mean, self.batches), self.mean, self.variance])

    @staticmethod
    def of(saved: Array) -> Domain:
        """Return the domain from such an array."""
        batches, mean, variance = saved
        return Domain(int(batches[0]), mean, variance) if mean.size else Domain()
