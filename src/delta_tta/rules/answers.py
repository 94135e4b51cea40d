"""The mean answer to images that are as sharp as this one.

A model that fails gives the same few answers again and again. The mean answer q tells so, if it is the mean over images
that are alike. Where rain follows fog every hundred images, the mean over both makes what the model always says in the
rain look rare, and so look right, and look like a class that stays in view for a while. So the mean answers are kept
by level of sharpness; a sample counts for the two levels next to it. Where all images are alike, that is one mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..evidence import Array

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
        sums: of the answers, (…, levels, T, K).
        counts: of the samples, (levels,).
    """

    sums: Array = field(default_factory=lambda: np.zeros((LEVELS, 0, 0), np.float32))
    counts: Array = field(default_factory=lambda: np.zeros(LEVELS, np.float32))

    @property
    def samples(self) -> float:
        """Of all levels."""
        return float(self.counts.sum())

    def after(self, p: Array, sharpness: Array | None, keep: float) -> tuple[MeanAnswers, Array]:
        """Return the sums with these answers, and how much each sample belongs to each level, (B, levels).

        Args:
            p: (…, T, B, K).
            sharpness: of each sample, (B,); None where there is none to be had.
            keep: how much of what was there stays.
        """
        belongs = _levels(np.zeros(p.shape[-2], np.float32) if sharpness is None else sharpness)
        sums = np.einsum("bl,...tbk->...ltk", belongs, p)
        if self.samples:
            sums += np.float32(keep) * self.sums
        return MeanAnswers(sums, np.float32(keep) * self.counts + belongs.sum(0)), belongs

    def at(self, belongs: Array, uniform: float) -> Array:
        """Return q of each sample, (…, T, B, K).

        Args:
            belongs: to each level, (B, levels).
            uniform: samples, spread evenly over the classes, that are counted as well.
        """
        samples, classes = self.samples, self.sums.shape[-1]
        mean = self.sums.sum(-3, keepdims=True) / np.float32(samples)
        levels = (self.sums + COMMON * mean) / (self.counts + COMMON)[:, None, None]
        levels = (np.float32(samples) * levels + np.float32(uniform / classes)) / np.float32(samples + uniform)
        found: Array = np.einsum("bl,...ltk->...tbk", belongs, levels)
        return found


def fits(sums: tuple[int, ...], counts: tuple[int, ...], leading: tuple[int, ...], classes: int | None) -> bool:
    """Whether arrays of these shapes may be mean answers over so many classes, or before the first."""
    last = (leading[-1], sums[-1] if classes is None else classes)
    return counts == (LEVELS,) and sums in ((*leading[:-1], LEVELS, *last), (LEVELS, 0, 0))


def _levels(sharpness: Array) -> Array:
    """Return how much each sample belongs to each level, (B, levels); rows sum to 1."""
    at = np.nan_to_num(sharpness) / WIDTH
    low = np.floor(at)
    belongs, rows = np.zeros((len(at), LEVELS), np.float32), np.arange(len(at))
    belongs[rows, low.astype(int) % LEVELS] = 1 - (at - low)
    belongs[rows, (low.astype(int) + 1) % LEVELS] = at - low
    return belongs
