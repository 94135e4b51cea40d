"""The mean answer to images that are as sharp as this one.

A model that fails gives the same few answers again and again. The mean answer q tells so, if it is the mean over images
that are alike. Where rain follows fog every hundred images, the mean over both makes what the model always says in the
rain look rare, and so look right, and look like a class that stays in view for a while. So the mean answers are kept
by level of sharpness; a sample counts for the two levels next to it. Where all images are alike, that is one mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..evidence import Array

Levels = npt.NDArray[np.int64]

LEVELS = 9
"""Those of images that are 90 times (e^4.5) as sharp are the same again, so that there is no first and no last."""
WIDTH = 0.5
"""Between two levels, in the logarithm of the sharpness: a factor of 1.65. Images of one domain spread over about two,
classes differ by less, noise and blur lie two or more away (`benchmarks/domains.py`)."""
COMMON = np.float32(32)
"""Samples that a level starts with, of the mean over all levels. With 8, a filter loses up to 1.4 points where classes
come one after the other."""


@dataclass(frozen=True, eq=False)
class MeanAnswers:
    """Sums of answers by level.

    Attributes:
        sums: of the answers, (…, T, levels, K).
        counts: of the samples, (levels,).
    """

    sums: Array = field(default_factory=lambda: np.zeros((0, LEVELS, 0), np.float32))
    counts: Array = field(default_factory=lambda: np.zeros(LEVELS, np.float32))

    @property
    def samples(self) -> float:
        """Of all levels."""
        return float(self.counts.sum())

    def after(self, p: Array, sharpness: Array | None, keep: float) -> tuple[MeanAnswers, Array]:
        """Return the sums with these answers, and where the samples lie between the levels, (B,).

        Args:
            p: (…, T, B, K).
            sharpness: of each sample, (B,); None where there is none to be had.
            keep: how much of what was there stays.
        """
        at = np.zeros(p.shape[-2], np.float32)
        if sharpness is not None:
            at += np.nan_to_num(sharpness, posinf=0, neginf=0) / np.float32(WIDTH)
        sums = np.zeros((*p.shape[:-2], LEVELS, p.shape[-1]), np.float32)
        counts = np.zeros(LEVELS, np.float32)
        (low, _), (high, shares) = _next_to(at)
        for level in np.unique(low):
            rows = np.flatnonzero(low == level)
            own, share = (p if len(rows) == len(low) else p[..., rows, :]), shares[rows]
            upper = (share[:, None] * own).sum(-2)
            sums[..., level, :] += own.sum(-2) - upper
            sums[..., high[rows[0]], :] += upper
            counts[level] += (1 - share).sum()
            counts[high[rows[0]]] += share.sum()
        if self.samples:
            sums += np.float32(keep) * self.sums
        return MeanAnswers(sums, np.float32(keep) * self.counts + counts), at

    def at(self, places: Array, uniform: float) -> Array:
        """Return q of each sample, (…, T, B, K), or (…, T, 1, K) where all are alike.

        Args:
            places: where they lie between the levels, (B,), as `after` says.
            uniform: samples, spread evenly over the classes, that are counted as well.
        """
        samples, classes = self.samples, self.sums.shape[-1]
        mean = self.sums.sum(-2, keepdims=True) / np.float32(samples)
        levels = (self.sums + COMMON * mean) / (self.counts + COMMON)[:, None]
        levels = (np.float32(samples) * levels + np.float32(uniform / classes)) / np.float32(samples + uniform)
        if (places == places[:1]).all():  # as where images have no sharpness
            places = places[:1]
        (low, one), (high, other) = _next_to(places)
        found: Array = levels[..., low, :]
        found *= one[:, None]
        above = levels[..., high, :]
        above *= other[:, None]
        found += above
        return found


def fits(sums: tuple[int, ...], counts: tuple[int, ...], leading: tuple[int, ...], classes: int | None) -> bool:
    """Whether arrays of these shapes may be mean answers over so many classes, or before the first."""
    found = (*leading, LEVELS, sums[-1] if classes is None else classes)
    return counts == (LEVELS,) and sums in (found, (0, LEVELS, 0))


def _next_to(places: Array) -> tuple[tuple[Levels, Array], tuple[Levels, Array]]:
    """Return the two levels next to each sample, and how much it counts for each of them, (B,)."""
    low = np.floor(places)
    share, first = places - low, low.astype(np.int64) % LEVELS
    return (first, 1 - share), ((first + 1) % LEVELS, share)
