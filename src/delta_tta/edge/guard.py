"""Which batches are not learnt from, in numpy; `guard/` explains the checks."""

from __future__ import annotations

import numpy as np

from ..guard.proportion import FeatureRange
from ..rules import TRUSTED_SAMPLES
from ..rules.shift import SUSPICIOUS, Shift, distance, shift_of_sums, terms
from ..signals import Reason, Skip
from .network import Images, Network, Statistics

SHOWS_NOTHING = Skip(Reason.BLANK, "all samples are alike, and far from what the source knows")


class EdgeGuard:
    """Looks at the statistics of a batch before anything is learnt from it."""

    def __init__(self, network: Network) -> None:
        limits, (mean, std) = network.about["guard"], network.source
        self._network = network
        self._first = network.layers[0]
        self._range = FeatureRange(mean[self._first].tolist(), std[self._first].tolist(), limits["reach"])
        self._alike: float = limits["alike"] if network.about["trained"] else 0.0

    def refuses(self, x: Images, seen: Statistics) -> Skip | None:
        """Return why nothing is to be learnt from a batch with such statistics, if so."""
        mean, std = (one[self._first].tolist() for one in seen)
        odd = self._range.left_by(mean, std)
        if odd is not None or len(x) < TRUSTED_SAMPLES or not self._alike:
            return odd
        if distance(seen, self._network.source) <= SUSPICIOUS * len(seen[0]):
            return None
        return SHOWS_NOTHING if self._shift(x).shows_nothing(self._alike) else None

    def _shift(self, x: Images) -> Shift:
        """Run the source on a batch; return how far its samples lie from it."""
        run, found = self._network.run(x, first=0), []
        means, variances = run.means.astype(np.float64), run.variances.astype(np.float64)
        for layer in self._network.layers:
            mean, std = (one[layer].astype(np.float64) for one in self._network.source)
            eps = float(self._network.eps[layer][0])
            sums = np.stack(terms(means[:, layer] - mean, variances[:, layer], eps)).sum(1)
            found.append(shift_of_sums(sums, std, eps))
        distances, varieties, channels = zip(*found, strict=True)
        return Shift(sum(distances), sum(varieties), sum(channels))
