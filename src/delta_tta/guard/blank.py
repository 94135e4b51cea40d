"""Whether a batch shows nothing, such as the frames of a covered lens: averages that follow those are lost.

Black frames are not out of all proportion, and the model's answers to them may be as certain as any. But their features
lie far from the source's statistics and hardly differ from one frame to the next: in the terms of `norms/shift.py`, the
distance is large and the variety small. Of a strong corruption only the first is true; of a still scene the second, and
the first only if it is strongly corrupted.

That takes a run of the source. So it is done only where the distance that the adapted model's layers have measured
is above `SUSPICIOUS`. What it then finds does not depend on what was learnt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from ..engine.model import AdaptedModel
from ..norms.base import AdaptiveNorm
from ..norms.moving import MovingAverage
from ..norms.shift import shift_of
from ..rules import TRUSTED_SAMPLES
from ..rules.shift import SUSPICIOUS, Shift, distance
from ..signals import Reason, Skip

SHOWS_NOTHING = Skip(Reason.BLANK, "all samples are alike, and far from what the source knows")


class BlankDetector:
    """Looks for blank batches in one model."""

    def __init__(self, adapted: AdaptedModel, alike: float) -> None:
        self._adapted, self._alike = adapted, alike
        layers = [norm for norm in adapted.norms.values() if isinstance(norm, MovingAverage)]
        self._layers = [norm for norm in layers if norm.inherited() is not None]
        self._on = alike > 0 and any(has_trained_statistics(norm.source) for norm in layers)
        self._met: list[MovingAverage] = []  # the layers of the last batch, and the source's statistics of them
        self._inherited = torch.empty(0), torch.empty(0)

    def found(self, samples: int, of_source: Callable[[], Tensor]) -> bool:
        """Whether the batch that the layers have just observed is far from the source, and its samples alike.

        Args:
            samples: how many there are, on all ranks.
            of_source: runs the source on them.
        """
        if not self._on or samples < TRUSTED_SAMPLES:
            return False
        far, channels = self._distance()
        if far <= SUSPICIOUS * channels:
            return False
        return self._shift(of_source).shows_nothing(self._alike)

    @torch.no_grad()
    def _distance(self) -> tuple[float, int]:
        """Return how far this batch is from the source (Σ d) in how many channels, over the layers that measured it."""
        layers = [norm for norm in self._layers if norm.seen is not None]
        own = _together([norm.seen for norm in layers])
        if own is None:
            return 0.0, 0
        if layers != self._met or self._inherited[0].device != own[0].device:
            source = _together([norm.inherited() for norm in layers])
            assert source is not None
            self._met, self._inherited = layers, source
        return distance(own, self._inherited), len(own[0])

    def _shift(self, of_source: Callable[[], Tensor]) -> Shift:
        """Run the source on a batch; return how far the samples of all ranks lie from it."""
        told: list[tuple[AdaptiveNorm, Tensor]] = []
        phase = self._adapted.phase
        phase.sums = told
        try:
            of_source()
        finally:
            phase.sums = None
        totals: Sequence[Tensor | None] = [total for _, total in told]
        if phase.ranks is not None:
            totals = phase.ranks.add(totals)
        return shift_of([norm for norm, _ in told], totals)


def has_trained_statistics(layer: _BatchNorm) -> bool:
    """Whether it can tell what is far; a model that was never trained may well be tried on noise."""
    mean, var = layer.running_mean, layer.running_var
    return mean is not None and var is not None and not (bool((mean == 0).all()) and bool((var == 1).all()))


def _together(pairs: Sequence[tuple[Tensor, Tensor] | None]) -> tuple[Tensor, Tensor] | None:
    """Put means and standard deviations of several layers into one of each."""
    found = [pair for pair in pairs if pair is not None]
    return (torch.cat([mean for mean, _ in found]), torch.cat([std for _, std in found])) if found else None
