"""Whether a batch is out of all proportion, such as images scaled twice or not at all: no corruption is like that."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ..signals import Reason, Skip


class FeatureRange:
    """The source's statistics of the first layer, and how far from them a batch may be."""

    def __init__(self, means: Sequence[float], stds: Sequence[float], reach: float) -> None:
        self._channels = list(zip(means, stds, strict=True))
        self._limits = [(m - s * reach, m + s * reach, s / reach, s * reach) for m, s in self._channels]

    def left_by(self, means: Sequence[float], stds: Sequence[float]) -> Skip | None:
        """Return why a batch is out of proportion, if it is in most channels.

        In plain numbers: a first layer has few channels, and this is done at every batch.
        """
        odd = 0
        for (low, high, narrow, wide), m, s in zip(self._limits, means, stds, strict=True):
            if not (low <= m <= high and narrow <= s <= wide):
                odd += 1
        if 2 * odd <= len(means):
            return None
        pairs = list(zip(self._channels, means, stds, strict=True))
        width = statistics.median(s / spread for (_, spread), _, s in pairs)
        off = statistics.median(abs(m - usual) / spread for (usual, spread), m, _ in pairs)
        details = f"features {width:.2g} times as wide as the source's, {off:.2g} widths off"
        return Skip(Reason.OUT_OF_PROPORTION, details)
