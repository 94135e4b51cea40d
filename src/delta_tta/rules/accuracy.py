"""How many answers are right, and how many of the source's would be, without labels (docs/accuracy.md).

Two views answer the same samples: the method, and the source (for the method "source", the model under the batch's own
statistics). Each view's answers are tempered, and filtered over the stream as "+sticky" does. The view that tells more
scores what the caller got: an answer counts by the probability that the view gives it. A view tells

    H(mean p) − mean H(p) + log Z of neighbours in time          nats a sample.

Views are compared on blocks of samples, at first on all, later on few. In between, the mean confidence says what has
changed.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..evidence import TINY, Array, of_order, tempered
from .answers import MeanAnswers
from .filters import Beliefs, filtered

BLOCK = 64
"""Successive samples that are compared at a time; fewer tell little of their order."""
RAREST = 128
"""Blocks between two comparisons, at most: so they cost less than 2 % of a step."""
TEMPERATURE = np.float32(1.2)
"""Of all answers: where images have drifted, networks are too sure of themselves. Where no order helps, nothing else
says how far (`benchmarks/accuracy.py`)."""
MEMORY = 1000
"""Samples over which comparisons, and the confidence in between, are forgotten (to 1/e)."""
UNKNOWN = 0.06
"""Half of the interval however many samples there are: the error of the rule itself."""
TRUST = 0.75
"""How much the view that tells more counts where the method is compared with the source; the other has the rest."""
LOSS = 0.02
"""What the source's answers must be better by, beyond chance, before that counts as worse than the source."""
LEAST = 180
"""Samples that must have been compared before anything counts as worse than the source."""


class Accuracy(NamedTuple):
    """An estimate of the share of right answers, 0 to 1.

    Attributes:
        estimate: of the share.
        low: lower end of its interval.
        high: upper end.
        source: the estimate for the source's answers; None where the source itself answers.
    """

    estimate: float
    low: float
    high: float
    source: float | None


class View(NamedTuple):
    """What is known of one view."""

    answers: MeanAnswers
    evidence: Array  # of its filters, (T, S)
    uncertainty: float = 0.0  # mean H(p)
    order: float = 0.0  # mean log Z of neighbours

    @staticmethod
    def new() -> View:
        """Return the view before the first block."""
        return View(MeanAnswers(), Beliefs().evidence)

    @property
    def tells(self) -> float:
        """Nats a sample."""
        return _entropy(_mean(self.answers)[:1]) - self.uncertainty + self.order


@dataclass(frozen=True, eq=False)
class Comparisons:
    """The comparisons so far, as means that forget.

    Attributes:
        views: the method and the other view.
        compared: samples, as far as they are not forgotten.
        scores: by each view, of the answers and of the source's, and the mean square of their difference, (2, 3).
        confidence: of the answers to these samples.
    """

    views: tuple[View, View] = field(default_factory=lambda: (View.new(), View.new()))
    compared: float = 0.0
    scores: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 3)))
    confidence: float = 0.0

    def after(
        self,
        own: Array,
        other: Array,
        answers: Array,
        source: Array,
        names: Sequence[Hashable] | None = None,
    ) -> Comparisons:
        """Return them with one block more.

        Args:
            own: log-probabilities of the method before any filter, (B, K).
            other: of the other view, (B, K).
            answers: what the caller got, (B, K).
            source: the source's classes, (B,).
            names: of each sample, the stream it belongs to; None: all to one.
        """
        size = len(own)
        total = math.exp(-size / MEMORY) * self.compared + size
        new = size / total
        labels = answers.argmax(1)
        views, scores, rows = [], [], np.arange(size)
        for view, log_p in zip(self.views, (own, other), strict=True):
            p = tempered(log_p / TEMPERATURE)
            before = np.log(np.maximum(p[0], TINY))
            correction, beliefs = filtered(before, Beliefs(view.answers, view.evidence), names, True)
            order = of_order(p, _mean(beliefs.answers)) / size
            views.append(
                View(
                    beliefs.answers,
                    beliefs.evidence,
                    view.uncertainty + new * (_entropy(p[0]) - view.uncertainty),
                    view.order + new * (order - view.order),
                )
            )
            posterior = np.exp(before + correction)
            right, of_source = posterior[rows, labels], posterior[rows, source]
            scores.append([right.mean(), of_source.mean(), np.square(right - of_source).mean()])
        return Comparisons(
            (views[0], views[1]),
            total,
            self.scores + new * (np.array(scores) - self.scores),
            self.confidence + new * (confidence_of(answers) - self.confidence),
        )

    @property
    def best(self) -> int:
        """Which view tells more."""
        own, other = self.views
        return 0 if own.tells >= other.tells else 1

    @property
    def worse(self) -> bool:
        """Whether the source's answers are better, by what the views find."""
        if self.compared < LEAST:
            return False
        losses = self.scores[:, 1] - self.scores[:, 0]
        loss = TRUST * losses[self.best] + (1 - TRUST) * losses[1 - self.best]
        variance = np.maximum(self.scores[:, 2] - losses**2, 0).max()
        return bool(loss > LOSS + 2 * math.sqrt(variance / self.compared))

    def accuracy(self, confidence: float, of_source: bool) -> Accuracy:
        """Return the estimate.

        Args:
            confidence: of the answers lately, compared or not.
            of_source: whether the source's answers are others.
        """
        right, source, _ = self.scores[self.best].tolist()
        estimate = min(max(right + confidence - self.confidence, 0.0), 1.0)
        half = UNKNOWN + 2 * math.sqrt(estimate * (1 - estimate) / self.compared)
        return Accuracy(estimate, max(estimate - half, 0.0), min(estimate + half, 1.0), source if of_source else None)


def until_next_block(samples: int) -> int:
    """Return how many samples lie between the end of one block and the next, after so many in all."""
    blocks = samples // BLOCK
    return BLOCK * (max(1, min(RAREST, blocks // 4)) - 1)


def confidence_of(answers: Array) -> float:
    """Return the mean probability of the class that is answered, after tempering."""
    return float(tempered(answers, np.array([TEMPERATURE]))[0].max(1).mean())


def _mean(answers: MeanAnswers) -> Array:
    """Return q, (T, K)."""
    found: Array = answers.sums.sum(-2) / np.float32(answers.samples)
    return found


def _entropy(p: Array) -> float:
    """Return the mean entropy of rows, in nats."""
    return float(-(p * np.log(np.maximum(p, TINY))).sum(-1).mean())
