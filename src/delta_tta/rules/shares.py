"""Which share of the stream's statistics answers: what is counted, and the choice, over log-probabilities in numpy.

`shares/selection.py` explains the rule and runs it over a model's layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..evidence import MEMORY, MEMORY_OF_ANSWERS, Array, of_order, of_pairs, tempered, until_next
from .answers import MeanAnswers
from .domain import Domain

SHARES = (0.0, 0.25, 0.5, 0.75, 0.75)
"""m of each slot; the first is the source itself, the last takes the batch's own statistics. Both have no averages."""
OWN = 4
"""The slot that mixes the source with the batch's own statistics: where the domain changes every few batches, averages
are of domains that are gone."""
PRIOR = 768.0
"""Samples, spread evenly over the classes, that the mean answers start with. At the start of a dependent stream one
class is in view. Then a source that is right says one thing, and a candidate with statistics of that class many. With
512, the source was left on clean images of one class that filled the first three batches: 8 points lost, now 4."""
PRIOR_OF_ORDER = 2.0
"""The same for the order: with more, a source that fails and always says the same seems to know an order."""
DOUBT = 5.0
"""Nats by which a candidate must be ahead of the source before it answers. With none, one batch of a new class could
lead away from a source that is right: 10 points lost over the first 384 samples of a clean dependent stream."""
BATCH = 64
"""Samples in a batch that moves the averages by 1 − α; smaller ones move them by less. Half as many are enough to be
measured between two comparisons: it costs half."""


def best_slot(evidence: Sequence[float], doubt: float = DOUBT) -> int:
    """Return the candidate with the most evidence, or the source's 0 where none is ahead of it by more than `doubt`."""
    best = int(np.argmax(evidence))
    return best if evidence[best] > evidence[0] + doubt else 0


@dataclass(frozen=True)
class Memory:
    """What was counted: by slot, but for the number of samples and of batches."""

    slot: int = 0
    batches: int = 0
    due: int = 0
    prior: float = PRIOR
    evidence: tuple[float, ...] = (0.0,) * len(SHARES)
    updates: tuple[int, ...] = (0,) * len(SHARES)
    last: tuple[int, ...] = (0,) * len(SHARES)
    domain: Domain = field(default_factory=Domain)
    answers: MeanAnswers = field(default_factory=MeanAnswers)

    def with_sharpness(self, found: Array | None) -> tuple[Memory, bool]:
        """Return what is remembered of the domain of a batch, and whether a new one begins with it.

        Args:
            found: its sharpness, (C,); None if it has none.
        """
        if found is None:
            return self, False
        if self.domain.left_by(found):
            return Memory(domain=Domain().with_batch(found)), True
        return replace(self, domain=self.domain.with_batch(found)), False

    @property
    def steady(self) -> int:
        """The slot that answers where nothing is learnt: a batch may be a single image then."""
        return best_slot(self.evidence[:OWN]) if self.slot == OWN else self.slot

    @property
    def compares(self) -> bool:
        """Whether all candidates are to run on the next batch."""
        return self.batches >= self.due

    def measures_half(self, size: float) -> bool:
        """Whether half of a batch of so many samples is enough to be measured."""
        return not self.compares and self.slot != OWN and size >= BATCH / 2

    def compared(self, log_p: Sequence[Array], mirrored: Sequence[Array] | None, sharpness: Array | None) -> Memory:
        """Return the memory with the best slot.

        Args:
            log_p: of each candidate, (B, K).
            mirrored: for the mirror images; None if there are none.
            sharpness: of each sample, (B,); None if there is none.
        """
        found = [log_p, [] if mirrored is None else mirrored]
        size = len(log_p[0])
        early = (self.batches + 1) * size < PRIOR / 2
        due = self.batches + (1 if early else until_next(self.batches))
        if not size or not all(np.isfinite(one.max(1)).all() for one in (*found[0], *found[1])):
            return replace(self, due=due)
        p, others = ([tempered(one) for one in answers] for answers in found)  # each (T, B, K)
        keep, keep_answers = (math.exp(-size / memory) for memory in (MEMORY, MEMORY_OF_ANSWERS))
        prior = keep_answers * self.prior
        answers, between = self.answers.after(np.stack(p), sharpness, keep_answers)
        q, q_of_order = answers.at(between, prior), answers.at(between, PRIOR_OF_ORDER)
        evidence = [keep * old + of_order(*pair) for old, *pair in zip(self.evidence, p, q_of_order, strict=True)]
        if others:
            evidence = [old + of_pairs(*three) for old, *three in zip(evidence, p, others, q, strict=True)]
        return replace(
            self,
            slot=best_slot(evidence),
            due=due,
            prior=prior,
            evidence=tuple(evidence),
            answers=answers,
        )

    def rates(self, size: float, alpha: float) -> tuple[float, ...]:
        """Return how far the averages of each slot follow a batch of so many samples.

        Args:
            size: of the batch.
            alpha: the share of the old that stays at a full one.
        """
        share = min(1.0, size / BATCH)
        gap = [self.batches - last for last in self.last]
        return tuple(max(1 / (n + 1), 1 - alpha ** (share * (1 + g))) for n, g in zip(self.updates, gap, strict=True))

    def after(self, met: Sequence[int]) -> Memory:
        """Return the memory after a batch that these slots have met."""
        return replace(
            self,
            batches=self.batches + 1,
            updates=tuple(n + (slot in met) for slot, n in enumerate(self.updates)),
            last=tuple(self.batches + 1 if slot in met else n for slot, n in enumerate(self.last)),
        )
