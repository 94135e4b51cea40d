"""The guard at work: garbage never enters the state, and a collapse is undone.

How a collapse shows without labels. Training moves γ and β a little, so a healthy model answers nearly as it would with
the source's parameters and the statistics of now. That holds for every stream: where one class stays for
minutes, both say so. Parameters that run away make the two disagree. Asking costs a forward pass, so it is done at the
batches 2, 4, 8, … and then at one in `every`.

What is done. The state goes back to where it was when the two last agreed, or, if that was tried already, to the
source; the batch is answered from there and not learnt from; and from then on the learning rate is `cooling` times what
it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

from ..engine import state as states
from ..engine.hooks import Check, Hooks
from ..engine.schedules import Every
from ..engine.step import Updater
from ..guard_limits import Guard
from ..norms.moving import MovingAverage
from ..recipe import Recipe
from ..settings import Settings
from ..signals import Reason, Skip
from .blank import SHOWS_NOTHING, BlankDetector
from .dependence import DependenceCheck
from .proportion import FeatureRange

log = logging.getLogger("delta_tta")


def hooks_of(recipe: Recipe, settings: Settings, updater: Updater, schedule: Every) -> Hooks:
    """Return the guard that the settings ask for, or none; and the warning of methods that need it."""
    guard = Guard() if settings.guard == "on" else settings.guard
    misled = recipe.per_batch and recipe.standalone is None and bool(updater.adapted.norms)
    check = DependenceCheck(recipe) if misled else None
    return Monitor(guard, updater, schedule, check) if isinstance(guard, Guard) else Hooks(check)


class Monitor(Hooks):
    """The guard of one adapter at work.

    Everything it counts is counted in batches and over all ranks together, so that ranks that adapt as one come to the
    same verdict at the same batch.
    """

    on = True

    def __init__(self, guard: Guard, updater: Updater, schedule: Every, check: Check | None = None) -> None:
        super().__init__(check)
        self.guard = guard
        self._updater, self._schedule = updater, schedule
        self._usual: FeatureRange | None = None
        self._blanks = BlankDetector(updater.adapted, guard.alike)
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.refused = 0
        self.rollbacks = 0
        self._good: dict[str, Any] | None = None  # the state when the two last agreed
        self._batches = 0
        self._next = 2  # the batch from which on they are compared again: at the first nothing is trained
        self._compared = self._agreed = 0

    def restarted(self) -> None:
        """Learning has begun again from the source: no state before it is to come back, but the rate stays."""
        self._good = None
        self._compared = self._agreed = 0
        self.cool()

    def attempt(self) -> Callable[[], AbstractContextManager[None]]:
        """Forget, where a batch fails, that it was ever counted."""
        before = dict(vars(self))

        @contextmanager
        def surround() -> Iterator[None]:
            try:
                yield
            except BaseException:
                vars(self).update(before)
                raise

        return surround

    def before_answer(self, x: Tensor, logits: Tensor) -> Skip | None:
        """If the model has collapsed, roll back and say so."""
        updater = self._updater
        if not updater.adapted.parameters:
            return None
        self._batches += 1
        if self._batches < self._next or self._blanks.found(self._size(x), lambda: updater.logits_of_source(x)):
            return None  # what a model makes of blank frames tells nothing about it
        self._compare(x, logits)
        if self._compared < self.guard.samples:
            return None
        share = self._agreed / self._compared
        self._compared = self._agreed = 0
        self._next = self._batches + min(self._batches, self.guard.every)
        if share >= self.guard.agreement:
            self._good = states.capture(updater, self._schedule)
            return None
        log.warning(
            "delta-tta: collapse at batch %d: the adapted model agrees with the one before training on %.0f %% of "
            "the samples",
            self._batches, 100 * share,
        )  # fmt: skip
        return self._roll_back()

    @torch.no_grad()
    def _compare(self, x: Tensor, logits: Tensor) -> None:
        with self._updater.in_phase("replaying"):  # where averages have yet to start, with what they would start from
            reference = self._updater.logits_of_reference(x)
        same = (logits.detach().argmax(1) == reference.argmax(1)).sum()
        counts: list[Tensor | None] = [torch.stack([same.float(), same.new_tensor(len(x)).float()])]
        if self._updater.ranks is not None:
            counts = self._updater.ranks.add(counts)
        assert counts[0] is not None
        agreed, compared = (int(n) for n in counts[0].tolist())
        self._agreed += agreed
        self._compared += compared

    def _roll_back(self) -> Skip:
        good, self._good = self._good, None  # it is tried once: the model may have been sliding already
        self.rollbacks += 1
        self._updater.reset()
        where = "the source"
        if good is not None:
            states.restore({**good, "cache": self._schedule.cache}, self._updater, self._schedule)
            where = "the last good state"
        self.cool()
        log.warning("delta-tta: rolled back to %s; learning on at %g times the learning rate", where, self._rate)
        return Skip(Reason.COLLAPSE, f"rolled back to {where}")

    @property
    def _rate(self) -> float:
        return self.guard.cooling**self.rollbacks

    def cool(self) -> None:
        """Let the optimizer learn at the rate that the rollbacks have left."""
        optimizer = self._updater.optimizer
        for group in optimizer.param_groups if optimizer is not None else ():
            group["lr"] = self._updater.settings.lr * self._rate

    def refuse(self, why: Skip) -> None:
        """Count a batch that was not learnt from because something about it is wrong."""
        self.refused += 1
        if self.refused & (self.refused - 1) == 0:  # the 1st, 2nd, 4th, 8th …: a dead camera must not fill the log
            log.warning("delta-tta: a batch was answered but not learnt from (%s); %d so far", why, self.refused)

    def before_commit(self, samples: int, of_source: Callable[[], Tensor]) -> Skip | None:
        """Say why nothing is to be learnt from a batch, if so: no corruption is like this.

        Args:
            samples: how many there are, on all ranks.
            of_source: runs the source on it.
        """
        return self._out_of_proportion() or (SHOWS_NOTHING if self._blanks.found(samples, of_source) else None)

    def _size(self, x: Tensor) -> int:
        if self._updater.ranks is None:
            return len(x)
        (everybodys,) = self._updater.ranks.add([torch.tensor(float(len(x)), device=x.device)])
        assert everybodys is not None
        return int(everybodys)

    @torch.no_grad()
    def _out_of_proportion(self) -> Skip | None:
        """Whether the features of the first layer are out of proportion."""
        norm = next(iter(self._updater.adapted.norms.values()), None)
        if not isinstance(norm, MovingAverage):
            return None
        seen = norm.seen
        if seen is None or norm.source.running_mean is None:
            return None
        if self._usual is None:
            inherited = norm.inherited()
            assert inherited is not None
            means, stds = torch.stack(inherited).tolist()
            self._usual = FeatureRange(means, stds, self.guard.reach)
        return self._usual.left_by(*torch.stack(seen).tolist())

    def memory(self) -> dict[str, Any]:
        """Return what must be saved."""
        counts = [self.refused, self.rollbacks, self._batches, self._next, self._compared, self._agreed]
        return {"counts": counts, "good": self._good}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Go on from what was saved; where that was without a guard, from nothing."""
        self.reset()
        if memory:
            self.refused, self.rollbacks, self._batches, self._next, self._compared, self._agreed = memory["counts"]
            self._good = memory["good"]
            self.cool()
