"""Base of the standalone methods that keep samples, and learn from these after each so many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import torch
from torch import Generator, Tensor

from ..engine.draws import numbers
from ..engine.finite import not_finite
from ..engine.step import Update, Updater
from ..errors import SettingError
from ..norms.moving import MovingAverage
from ..options import SeedOptions
from ..prediction import Prediction
from ..registry import State
from ..signals import Outcome, Reason, Skip
from ..tensors import at_least_float32

Learnt = tuple[float, Skip | None]
"""The loss of an update, and why nothing was learnt from it, if so."""


class Collecting(Updater):
    """Keeps samples by their predictions; trains γ and β on what it keeps after each `interval` samples.

    What is kept is in `objective_memory`, all of it as floating-point numbers: `images` and `labels`, what a method
    adds to them, `position`, the samples since the last update, and `step`, the number of updates.
    """

    trains: ClassVar[Literal["norms", "all"]] = "norms"
    needs_batch_norm = True
    cost = 7.0
    synchronises = False
    learns = True

    interval: int

    def keep(self, x: Tensor, seen: Prediction, position: int) -> State:
        """Return the memory after some more samples, without `position` and `step`; change nothing.

        Args:
            x: the samples.
            seen: what was answered.
            position: samples since the last update, before these.
        """
        raise NotImplementedError

    def train(self, images: Tensor) -> Learnt:
        """Train on the images that are kept; where something is not finite, change nothing and say so."""
        raise NotImplementedError

    def observe(self, x: Tensor, later: bool = False) -> tuple[Tensor, Update]:
        """Answer with what was learnt before this batch; keep its samples after."""
        attempt = self.hooks.attempt()
        logits = self.predict(x)

        def collect() -> Outcome:
            with attempt(), self._all_or_nothing(), torch.no_grad():
                return self._collect(x, logits)

        return logits.clone() if later else logits, collect

    def _collect(self, x: Tensor, logits: Tensor) -> Outcome:
        answered = Prediction(logits)
        entropy = float(answered.entropy.mean())
        wrong = not_finite({"prediction": [answered.p]})
        wrong = wrong or self.hooks.before_commit(len(x), lambda: self.logits_of_source(x))
        if wrong is not None:
            self.hooks.refuse(wrong)
            return Outcome(entropy=entropy, skipped=wrong)
        learnt: list[Learnt] = []
        begin = 0
        while begin < len(x):
            position, step = (int(self.objective_memory.get(key, 0)) for key in ("position", "step"))
            end = min(len(x), begin + self.interval - position)
            memory = self.keep(x[begin:end], Prediction(answered.logits[begin:end]), position)
            position += end - begin
            self.objective_memory = {
                **self.objective_memory,
                **memory,
                "position": torch.tensor(float(position % self.interval)),
                "step": torch.tensor(float(step)),
            }
            if position == self.interval:
                learnt.append(self.train(self.objective_memory["images"].to(x)))
                self.objective_memory["step"] = torch.tensor(float(step + 1))
            begin = end
        self.classes = answered.classes
        if not learnt:
            collecting = Skip(Reason.COLLECTING, f"{position} of {self.interval}")
            return Outcome(entropy=entropy, skipped=collecting)
        loss, wrong = learnt[-1]
        if wrong is not None:
            self.hooks.refuse(wrong)
        return Outcome(loss=loss, entropy=entropy, used=0.0 if wrong else 1.0, skipped=wrong)

    def chosen(self, x: Tensor, rows: list[int]) -> Tensor:
        """Return some of the images that are kept, followed by those of x, by their numbers; at least in float32."""
        new = at_least_float32(x.detach())
        if "images" in self.objective_memory:
            new = torch.cat([self.objective_memory["images"].to(new), new])
        return new[torch.tensor(rows, dtype=torch.long, device=new.device)]

    def numbers(self, key: str) -> list[float]:
        """Return what is kept of each image, as Python's numbers."""
        kept = self.objective_memory.get(key)
        return [] if kept is None else kept.tolist()

    def generator(self, position: int) -> Generator:
        """Return the random numbers of a sample or, at the end of an interval, of its update.

        They do not depend on how the stream is cut into batches, and a saved state goes on with the same.
        """
        step = int(self.objective_memory.get("step", 0))
        number = step * (self.interval + 1) + position
        return numbers(self.settings.options(SeedOptions).seed, number)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Go back to where the batch began if one of its updates fails; earlier ones have changed the state."""
        go_back = self._remembered()
        try:
            yield
        except BaseException:
            go_back()
            raise
        finally:
            self.discard()

    def _remembered(self) -> Callable[[], None]:
        memory, classes = dict(self.objective_memory), self.classes
        parameters = {p: p.detach().clone() for p in self.adapted.parameters.values()}
        optimizer = {} if self.optimizer is None else {p: _copied(s) for p, s in self.optimizer.state.items()}
        averages = [
            (norm, norm.remembered()) for norm in self.adapted.norms.values() if isinstance(norm, MovingAverage)
        ]

        def go_back() -> None:
            self.objective_memory, self.classes = memory, classes
            with torch.no_grad():
                for p, value in parameters.items():
                    p.copy_(value)
            if self.optimizer is not None:
                self.optimizer.state.clear()
                self.optimizer.state.update(optimizer)
            for norm, kept in averages:
                norm.mean, norm.std = kept.get("mean"), kept.get("std")

        return go_back


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value.clone() if isinstance(value, Tensor) else value for key, value in values.items()}


def require(name: str, value: object, fine: bool, words: str) -> None:
    """Raise where a method's own setting is out of range."""
    if not fine:
        raise SettingError(f"Expected setting `{name}` to be {words}, but got {value!r}.")


def require_count(name: str, value: object) -> None:
    """Raise unless a setting is a whole number from 1 on."""
    require(name, value, isinstance(value, int) and not isinstance(value, bool) and value >= 1, "an integer from 1 on")


def require_number(name: str, value: object, least: float, most: float = float("inf")) -> None:
    """Raise unless a setting is a finite number between two others."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fine = number and least <= value <= most and value != float("inf")  # type: ignore[operator]  # it is a number
    require(name, value, fine, f"a number from {least:g} to {most:g}" if most < float("inf") else f"at least {least:g}")
