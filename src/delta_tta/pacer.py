"""Applies the rule of pace.py to the layers of one adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from . import pace
from .norms.layers import TRUSTED_SAMPLES, AdaptiveNorm, MovingAverage
from .norms.shift import Shift, distance, shift_of
from .norms.statistics import at_least_float32
from .pace import Look, Start
from .prediction import Prediction
from .settings import Settings
from .subject import Subject
from .words import State


class Pacer:
    """Says where the moving averages start, how far they follow each batch, and how far they may leave the source."""

    def __init__(self, subject: Subject, settings: Settings) -> None:
        self.subject, self.settings = subject, settings
        self.ranks = subject.phase.ranks
        moving = [norm for norm in subject.norms.values() if isinstance(norm, MovingAverage)]
        self.on = settings.pace == "diverse" and bool(moving)
        self._layers = [norm for norm in moving if norm.inherited() is not None]
        self._met: list[MovingAverage] = []  # the layers of the last batch, and the source's statistics of them
        self._inherited = torch.empty(0), torch.empty(0)
        self.memory: State = {}
        self.reset()

    def reset(self) -> None:
        """Forget the stream."""
        self.memory = {}
        self._start: Start | None = None

    def choose_start(self, of_source: Callable[[], Tensor], from_there: Callable[[], Tensor]) -> Look | None:
        """Let averages that have not started do so between the source and this batch; return what was seen of it.

        What the source predicts tells how diverse the batch is. A source that fails may see few classes where there are
        many, so the model looks again from a start so chosen. That may see many where there are few, and averages that
        are told so are freer to follow the next batches; returned is the more certain of the two looks.

        Args:
            of_source: runs the source on the batch and returns its logits.
            from_there: runs the model as it would start, and leaves no trace.
        """
        chooses = self.on and not self.memory and self.settings.init == "auto"
        if not chooses or all(norm.settled for norm in self.subject.norms.values()):
            return None
        phase = self.subject.phase
        logits, shift = self.shift(of_source)
        seen, doubt = self._look(logits)
        phase.start = seen.pace
        again, doubt_again = self._look(from_there())
        certain, seen = again if doubt_again < doubt else seen, seen.best(again)
        self._start = pace.start(seen, shift.spread, shift.distance)
        if seen.size < TRUSTED_SAMPLES:
            self._start = self._start.at_source()  # as the layers do
        phase.start = self._start.share
        return certain

    def shift(self, of_source: Callable[[], Tensor]) -> tuple[Tensor, Shift]:
        """Run the source on a batch; return its logits, and how far the samples of all ranks lie from the source."""
        told: list[tuple[AdaptiveNorm, Tensor]] = []
        self.subject.phase.sums = told
        try:
            logits = of_source()
        finally:
            self.subject.phase.sums = None
        totals: Sequence[Tensor | None] = [total for _, total in told]
        if self.ranks is not None:
            totals = self.ranks.add(totals)
        return logits, shift_of([norm for norm, _ in told], totals)

    def follow(self, p: Tensor, distance: float) -> None:
        """Say how far the averages follow this batch, and remember its classes.

        Args:
            p: the batch's probabilities.
            distance: how far it is from the source.
        """
        phase, seen = self.subject.phase, pace.look(p, self.memory)
        if self.memory:
            phase.rate = pace.rate(seen, float(self.memory["doubt"]), self.settings.alpha)
            self.memory = pace.next_memory(p, self.memory, seen, distance)
        else:
            start = self._start or pace.unmeasured(seen)
            phase.rate = pace.rate(seen, 0.0, self.settings.alpha)
            self.memory = pace.first_memory(p, start.at_source() if self.settings.init == "inherit" else start)
        phase.reach = pace.reach(self.memory)

    def _look(self, logits: Tensor) -> tuple[Look, float]:
        """Look at predictions of all ranks; return how uncertain they are, too."""
        if self.ranks is not None:
            logits = self.ranks.join(at_least_float32(logits))
        prediction = Prediction(logits)
        return pace.look(prediction.p, self.memory), float(prediction.entropy.mean())

    @torch.no_grad()
    def distance(self) -> tuple[float, int]:
        """Return how far this batch is from the source (Σ d) in how many channels, over the layers that met it."""
        layers = [norm for norm in self._layers if norm.seen is not None]
        own = _together([norm.seen for norm in layers])
        if own is None:
            return 0.0, 0
        if layers != self._met or self._inherited[0].device != own[0].device:
            source = _together([norm.inherited() for norm in layers])
            assert source is not None
            self._met, self._inherited = layers, source
        return distance(own, self._inherited), len(own[0])


def _together(pairs: Sequence[tuple[Tensor, Tensor] | None]) -> tuple[Tensor, Tensor] | None:
    """Put means and standard deviations of several layers into one of each."""
    found = [pair for pair in pairs if pair is not None]
    return (torch.cat([mean for mean, _ in found]), torch.cat([std for _, std in found])) if found else None
