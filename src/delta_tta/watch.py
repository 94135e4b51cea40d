"""Watches over an adapter: what is not finite never enters the state, a collapse is undone, dependence is heeded.

How a collapse shows without labels. Training moves γ and β a little, so a healthy model answers nearly as its *twin*
does: the same model with the same statistics, but the source's parameters. That holds whatever fills the view: where
one class stays for minutes, both say so. Parameters that run away make the two disagree, within a batch or two at a
wild learning rate, after thousands of batches at a usual one. The twin costs one more forward pass, so it is asked
rarely: for one sample in `every`, and at once when the parameters move fast: within n batches since the last verdict by
`drift` · √(n / every), which a walk without aim would reach that makes `drift` in `every` batches.

A model that is in such haste from the start is asked again and again, and held to `hasty_agreement`: training that is
good for it rarely changes a tenth of its answers within the first batches.

What is done. The state goes back to where it was when the twin last agreed, or, if that was tried or is fewer than
`every` batches ago, and so may have been sliding already, to the source; the batch is answered from there and not
learnt from; and from then on the learning rate is `cooling` times what it was. The parameters alone go back to the
source where the statistics are good: if the two agreed at the batch before, nothing was learnt with bad parameters yet;
and where haste alone is to blame, and the two agree on `agreement` of the samples still, they are taken to be good.

Statistics can be wrong though nothing runs away: those of each batch alone, where batches are unlike each other
(`dependence.py`). Then moving averages take their place until `reset`, and training begins anew.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from . import blank, dependence
from . import state as states
from .guard import Guard
from .norms.layers import MovingAverage
from .proportion import Usual
from .settings import Settings

if TYPE_CHECKING:
    from .learner import Learner
    from .schedules import Every

log = logging.getLogger("delta_tta")

Verdict = Literal["collapse", "haste"]
"""What is wrong with a model: it is wrecked, or its parameters alone are on the way there."""

MEASURE_ALWAYS = 16
MEASURE_EVERY = 8
"""The drift is measured at each of the first batches, later at one in eight: it costs as much as a small layer."""
START, AGAIN = 128, 1 / 8
"""The batches in which haste is looked for; a model in haste is asked again after an eighth of those it has met."""
RUNAWAY, SOON = 1.0, 1024
"""A drift that no training needs so soon: parameters that changed by their own size within some hundred batches have
wrecked the statistics of the deeper layers, too, and with these the twin, which may then agree. Over tens of thousands
of batches they may get there in good health, so the limit grows with the root of their number."""


def watch_over(settings: Settings, learner: Learner, schedule: Every) -> Watch | None:
    """Set the guard that the settings ask for."""
    guard = Guard() if settings.guard == "on" else settings.guard
    return Watch(guard, learner, schedule) if isinstance(guard, Guard) else None


class Watch:
    """The guard of one adapter at work.

    Everything it counts is counted in batches and over all ranks together, so that ranks that adapt as one come to the
    same verdict at the same batch.
    """

    def __init__(self, guard: Guard, learner: Learner, schedule: Every) -> None:
        self.guard = guard
        self._learner, self._schedule = learner, schedule
        source = learner.subject.source.values()
        self._usual: Usual | None = None
        layers = [norm.source for norm in learner.subject.norms.values()]
        self._sees_blanks = guard.alike > 0 and any(blank.has_trained_statistics(layer) for layer in layers)
        self._size = math.sqrt(sum(float(p.double().square().sum()) for p in source)) or 1.0
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.refused = 0
        self.rollbacks = 0
        self._good: dict[str, Any] | None = None
        self._judged_at = 0  # the batch of the last verdict, from which it is
        self._batches = 0  # all of them
        self._next = 0  # the batch at which the twin is asked next
        self._asked: int | None = None  # at how many batches it has been asked for the verdict to come
        self._compared = 0
        self._agreed = 0
        self._drift = 0.0  # at the last verdict
        self._unaveraged: dict[str, Any] | None = None  # the state before it was found so at this batch
        self._labels = torch.empty(0, 0, dtype=torch.int64)  # of the source, see dependence.py
        self._met = 0  # batches, to look at one in so many

    @contextmanager
    def undone_if_it_fails(self, mark: dict[str, Any]) -> Iterator[None]:
        """Forget, where a batch fails, that it was ever counted, and that it gave its statistics up."""
        try:
            yield
        except BaseException:
            unaveraged = self._unaveraged
            vars(self).update(mark)
            if unaveraged is not None:
                states.restore(unaveraged, self._learner, self._schedule)
            raise

    def mark(self) -> dict[str, Any]:
        """Return what is counted now, for `undone_if_it_fails`."""
        return dict(vars(self))

    def distrusts(self, x: Tensor) -> bool:
        """Whether the batch's own statistics, which are to normalise it, come from a single sample."""
        learner = self._learner
        return len(x) == 1 and learner.normalises_alone and learner.ranks is None

    def looks_at_the_next(self) -> bool:
        """Whether the next batch is looked at before it is normalised with its own statistics."""
        learner = self._learner
        heeds = learner.may_average and not learner.averaging and self.guard.coherence < 1
        return heeds and (not dependence.complete(self._labels) or (self._met + 1) % dependence.EVERY == 0)

    def heed_dependence(self, x: Tensor) -> None:
        """Look at a batch, now and then, before it is normalised; give its own statistics up where they mislead."""
        due = self.looks_at_the_next()
        self._unaveraged = None
        self._met += 1
        why = self._dependence_in(x) if due else None
        if why is None:
            return
        log.warning("delta-tta: normalising with moving averages from batch %d on: %s", self._met, why)
        learner = self._learner
        self._unaveraged = states.capture(learner, self._schedule)
        learner.average(True)
        learner.untrain()  # what was learnt was learnt with statistics that mislead
        self.cool()
        self._good, self._judged_at, self._drift, self._next = None, self._batches, 0.0, 0
        self._asked, self._compared, self._agreed = None, 0, 0

    def _dependence_in(self, x: Tensor) -> str | None:
        """Return what tells that batches are unlike each other, in words, if they are."""
        first, later = not len(self._labels), dependence.complete(self._labels)
        if first or later:
            seen = self._learner.first_look(x)
            if seen is not None and dependence.few_classes(seen):
                return "it shows few classes"
        if later:
            return None
        self._let_the_source_label(x)
        excess = dependence.coherence(self._labels)
        if excess <= self.guard.coherence or dependence.surprise(self._labels) <= dependence.SURE:
            return None
        return f"two samples of one batch get the same label more often, by {excess:.2f}, than two of different batches"

    @torch.no_grad()
    def _let_the_source_label(self, x: Tensor) -> None:
        """Count how many samples of the batch are in each class, over all ranks; none if a row has no label."""
        learner = self._learner
        logits = learner.logits_of_source(x)
        classes = logits.shape[1]
        labels = logits.argmax(1).masked_fill(~logits.amax(1).isfinite(), classes)
        counts: list[Tensor | None] = [labels.bincount(minlength=classes + 1).float()]
        if learner.ranks is not None:
            counts = learner.ranks.add(counts)
        assert counts[0] is not None
        *labelled, without = counts[0].long().tolist()
        if any(labelled) and not without:
            self._labels = dependence.with_batch(self._labels, torch.tensor(labelled))

    def verdict(self, x: Tensor, logits: Tensor) -> Verdict | None:
        """Look at a batch before it is answered; return what is wrong if the model has left its twin behind."""
        if not self._learner.subject.parameters:
            return None
        self._batches += 1
        if not self._due() or self._meets_nothing(x):
            return None
        self._ask(x, logits)
        if self._compared < self.guard.samples:
            return None
        share = self._agreed / self._compared
        assert self._asked is not None
        self._next = self._batches + self.guard.every * self._asked
        self._asked, self._compared, self._agreed = None, 0, 0
        self._drift = self._measured_drift()
        found: Verdict | None = None
        if share < self.guard.agreement or self._drift > RUNAWAY * math.sqrt(max(1.0, self._batches / SOON)):
            found = "collapse"
        elif share < self.guard.hasty_agreement and self._hasty(self._drift):
            found = "haste"
        if found is None:
            self._good, self._judged_at = states.capture(self._learner, self._schedule), self._batches
        else:
            log.warning(
                "delta-tta: %s at batch %d: the adapted model agrees with the one before training on %.0f %% of "
                "the samples (its parameters have moved by %.0f %%)",
                found, self._batches, 100 * share, 100 * self._drift,
            )  # fmt: skip
        return found

    def _due(self) -> bool:
        """Whether the twin is to be asked at this batch."""
        if self._asked is not None or self._batches >= self._next > 0:
            return True
        if self._batches > MEASURE_ALWAYS and self._batches % MEASURE_EVERY:
            return False
        drift = self._measured_drift()
        if self._next == 0 and drift > 0:  # there is something to compare
            self._next = self._batches + self.guard.every
        since = self._batches - self._judged_at
        if self._hasty(drift) and since >= AGAIN * self._batches:
            return True
        return abs(drift - self._drift) >= self.guard.drift * math.sqrt(since / self.guard.every)

    def _hasty(self, drift: float) -> bool:
        """Whether the parameters have come this far too soon."""
        limit = self.guard.drift * math.sqrt(self._batches / self.guard.every)
        return self._batches <= START and drift >= limit

    @torch.no_grad()
    def _ask(self, x: Tensor, logits: Tensor) -> None:
        learner = self._learner
        twin = learner.logits_of_twin(x)
        same = (logits.detach().argmax(1) == twin.argmax(1)).sum()
        counts: list[Tensor | None] = [torch.stack([same.float(), same.new_tensor(len(x)).float()])]
        if learner.ranks is not None:
            counts = learner.ranks.add(counts)
        assert counts[0] is not None
        agreed, compared = (int(n) for n in counts[0].tolist())
        self._asked = (self._asked or 0) + 1
        self._agreed += agreed
        self._compared += compared

    @torch.no_grad()
    def _measured_drift(self) -> float:
        """How far the trained parameters are from the source, relative to their size."""
        subject = self._learner.subject
        if not subject.parameters:
            return 0.0
        moved = torch._foreach_sub([p.detach() for p in subject.parameters.values()], list(subject.source.values()))
        return float(torch.stack(torch._foreach_norm(moved)).norm()) / self._size

    def roll_back(self, verdict: Verdict = "collapse") -> str:
        """Undo what the verdict found; return what was done, in words."""
        good, self._good = self._good, None
        age = self._batches - self._judged_at
        untouched = self._batches <= 2 or (good is not None and age <= 1)  # all was learnt with good parameters
        if age < self.guard.every:
            good = None
        self._judged_at = self._batches
        self.rollbacks += 1
        if verdict == "haste" or (good is None and untouched):
            self._learner.untrain()
            where = "the parameters of the source"
        else:
            self._learner.reset()
            where = "the source"
            if good is not None:
                states.restore({**good, "cache": self._schedule.cache}, self._learner, self._schedule)
                where = "the last good state"
        self.cool()
        self._drift, self._next = self._measured_drift(), 0
        log.warning("delta-tta: rolled back to %s; learning on at %g times the learning rate", where, self._rate)
        return f"{verdict}: rolled back to {where}"

    @property
    def _rate(self) -> float:
        return self.guard.cooling**self.rollbacks

    def cool(self) -> None:
        """Let the optimizer learn at the rate that the rollbacks have left."""
        optimizer = self._learner.optimizer
        for group in optimizer.param_groups if optimizer is not None else ():
            group["lr"] = self._learner.settings.lr * self._rate

    def refuse(self, why: str) -> None:
        """Count a batch that was not learnt from because something about it is wrong."""
        self.refused += 1
        if self.refused & (self.refused - 1) == 0:  # the 1st, 2nd, 4th, 8th …: a dead camera must not fill the log
            log.warning("delta-tta: a batch was answered but not learnt from (%s); %d so far", why, self.refused)

    def garbage(self, samples: int, distance: float, channels: int, of_source: Callable[[], Tensor]) -> str | None:
        """Say in words why nothing is to be learnt from a batch, if so: no corruption is like this.

        Args:
            samples: how many there are, on all ranks.
            distance: of the batch from the source, Σ d.
            channels: over how many channels that is.
            of_source: runs the source on it.
        """
        wrong = self._out_of_proportion()
        if wrong is None and self._is_blank(samples, distance, channels, of_source):
            return blank.SHOWS_NOTHING
        return wrong

    def _is_blank(self, samples: int, distance: float, channels: int, of_source: Callable[[], Tensor]) -> bool:
        if not self._sees_blanks or not blank.suspicious(samples, distance, channels):
            return False
        return blank.is_blank(self._learner.pacer.shift(of_source)[1], self.guard.alike)

    def _meets_nothing(self, x: Tensor) -> bool:
        """Whether the batch at hand is blank: what model and twin make of such frames tells nothing about either."""
        learner, samples = self._learner, len(x)
        if learner.ranks is not None:
            (everybodys,) = learner.ranks.add([torch.tensor(float(samples), device=x.device)])
            assert everybodys is not None
            samples = int(everybodys)
        return self._is_blank(samples, *learner.pacer.distance(), lambda: learner.logits_of_source(x))

    @torch.no_grad()
    def _out_of_proportion(self) -> str | None:
        """Whether the first layer met features out of all proportion."""
        norm = next(iter(self._learner.subject.norms.values()), None)
        if not isinstance(norm, MovingAverage):
            return None
        seen = norm.seen
        if seen is None or norm.source.running_mean is None:
            return None
        if self._usual is None:
            inherited = norm.inherited()
            assert inherited is not None
            self._usual = Usual(*inherited, self.guard.reach)
        return self._usual.left_by(*seen)

    def memory(self) -> dict[str, Any]:
        """Return what must be saved."""
        return {
            "refused": self.refused,
            "rollbacks": self.rollbacks,
            "counts": [self._batches, self._next, -1 if self._asked is None else self._asked,
                       self._compared, self._agreed, self._judged_at],
            "drift": self._drift,
            "good": self._good,
            "labels": self._labels,
            "met": self._met,
        }  # fmt: skip

    def remember(self, memory: dict[str, Any], batches: int) -> None:
        """Go on from what was saved; where that was without a guard, with so many batches behind the parameters."""
        self.reset()
        if not memory:
            self._batches = self._judged_at = batches
            self._drift = self._measured_drift()
            return
        self.refused, self.rollbacks = memory["refused"], memory["rollbacks"]
        self._batches, self._next, asked, self._compared, self._agreed, self._judged_at = memory["counts"]
        self._asked = None if asked < 0 else asked
        self._drift, self._good = memory["drift"], memory["good"]
        self._labels, self._met = memory["labels"].cpu(), memory["met"]
        self.cool()
