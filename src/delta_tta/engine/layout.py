"""The memory layout in which a model runs: as it was given, one of two, or the faster of them on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from ..signals import Outcome

Name = Literal["contiguous", "channels_last"]
FORMATS: dict[Name, torch.memory_format] = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
}
WARM = 2
"""Batches of each layout that do not count: the first ones check the model, or start statistics."""
ROUNDS = 5
"""Batches of each layout that are timed; the smaller median wins."""
Update = Callable[[], Outcome]
Answer = Callable[[Tensor, bool], tuple[Tensor, Update]]


class Layout:
    """Converts images, and the weights that do not train: an optimizer's state has the layout of its parameters."""

    def __init__(self, model: nn.Module, wanted: Name | Literal["auto"] | None, trained: Iterable[Tensor]) -> None:
        own = {id(p) for p in trained}
        fixed = (p for p in model.parameters() if p.dim() == 4 and id(p) not in own)
        self._given = [(p, p.stride()) for p in fixed] if wanted is not None else []
        self.now: Name | None = None
        self._left = 2 * (WARM + ROUNDS) if wanted == "auto" else 0
        self._times: dict[Name, list[float]] = {name: [] for name in FORMATS}
        if wanted is not None and wanted != "auto":
            self._turn_to(wanted)

    def __call__(self, x: Tensor) -> Tensor:
        """Return x as the model takes it."""
        return x if self.now is None or x.dim() != 4 else x.contiguous(memory_format=FORMATS[self.now])

    def restore(self) -> None:
        """Bring back the layout that the weights were given in."""
        for p, stride in self._given if self.now is not None else ():
            p.data = torch.empty_strided(p.shape, stride, dtype=p.dtype, device=p.device).copy_(p.data)
        self.now = None

    def timed(self, answer: Answer, x: Tensor, later: bool) -> tuple[Tensor, Update]:
        """Answer a batch, and while the layouts are compared, measure how long its answer and its update take.

        Args:
            answer: of the schedule; it returns the logits and the update.
            x: the batch.
            later: whether the update runs in the background.
        """
        if not self._left:
            return answer(x, later)
        names = list(FORMATS)
        self._turn_to(names[self._left % 2])
        begun = _clock(x)
        logits, update = answer(x, later)
        answered = _clock(x) - begun

        def learn() -> Outcome:
            start = _clock(x)
            done = update()
            self._note((answered + _clock(x) - start) / len(x))
            return done

        return logits, learn

    def _note(self, seconds: float) -> None:
        """Keep the time of a batch; after the last one, the faster layout."""
        assert self.now is not None
        self._left -= 1
        if self._left < 2 * ROUNDS:
            self._times[self.now].append(seconds)
        if not self._left:
            self._turn_to(min(FORMATS, key=lambda name: statistics.median(self._times[name])))

    def _turn_to(self, name: Name) -> None:
        if name != self.now:
            for p, _ in self._given:
                p.data = p.data.contiguous(memory_format=FORMATS[name])
            self.now = name


def _clock(x: Tensor) -> float:
    """Return the time at which what runs on the device of x has ended."""
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return time.perf_counter()
