"""What an adapter reports after each batch."""

from __future__ import annotations

import enum
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it is read where there is no torch
    from torch import Tensor

    from .rules.accuracy import Accuracy


class Reason(enum.Enum):
    """Why nothing, or not everything, was learnt from a batch."""

    NOT_FINITE = "not finite"
    OUT_OF_PROPORTION = "out of proportion"
    BLANK = "shows nothing"
    COLLAPSE = "collapse"
    THRESHOLD = "no sample passed the threshold"
    COLLECTING = "collecting samples"
    NO_SAMPLE = "no rank had a sample"


BAD_INPUT = (Reason.NOT_FINITE, Reason.OUT_OF_PROPORTION, Reason.BLANK)
"""Something is wrong with the batch itself."""


class Skip(str):
    """A reason with its details, as text."""

    reason: Reason
    _details: str

    def __new__(cls, reason: Reason, details: str = "") -> Skip:
        """Put both into words."""
        self = super().__new__(cls, f"{reason.value}: {details}" if details else reason.value)
        self.reason, self._details = reason, details
        return self

    def __getnewargs__(self) -> tuple[Reason, str]:  # type: ignore[override]
        """Let it be copied and pickled."""
        return self.reason, self._details


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one update did.

    Attributes:
        loss: the loss that was minimised; None if there was none.
        entropy: mean entropy of the predictions, in nats.
        used: share of the samples that trained, 0 to 1; None if the method has no loss.
        frequencies: DOT's estimate z of the class frequencies after the batch, (K,); None without DOT.
        skipped: why no optimizer step was taken although the method has one, as text; `skipped.reason` is one of
            `Reason`. None if one was.
    """

    loss: float | None = None
    entropy: float | None = None
    used: float | None = None
    frequencies: Tensor | None = None
    skipped: Skip | None = None

    @property
    def bad_input(self) -> bool:
        """Whether the batch was not learnt from because something is wrong with it."""
        return self.skipped is not None and self.skipped.reason in BAD_INPUT

    @property
    def spoilt(self) -> bool:
        """What `bad_input` was called before 0.2."""
        warnings.warn("signals.spoilt is now signals.bad_input.", DeprecationWarning, stacklevel=2)
        return self.bad_input


@dataclass(frozen=True, eq=False)
class Signals(Outcome):
    """The last update, and how far the adapter has come.

    Attributes:
        step: batches answered since the last reset.
        samples: samples answered since the last reset.
        refused: batches since then that were answered, but not learnt from, because the guard found something wrong:
            values that are not finite or out of all proportion, or nothing to be seen in them.
        rollbacks: collapses that the guard has undone since then.
        share: with "anchored", the share of the stream's statistics that normalise, 0 to 1; None without.
        stays: with "+sticky", how likely the class of the next sample is thought to be that of the last, 0 to 1; None
            without.
        layout: with the setting `layout`, the memory layout that the model runs in; None without.
        accuracy: with the setting `estimate`, an estimate of the share of right answers; None without, and before the
            first comparison.
        worse_than_source: with the setting `estimate`, whether the source itself would answer better; None without,
            before the first comparison, and where the source answers.
    """

    step: int = 0
    samples: int = 0
    refused: int = 0
    rollbacks: int = 0
    share: float | None = None
    stays: float | None = None
    layout: str | None = None
    accuracy: Accuracy | None = None
    worse_than_source: bool | None = None

    @property
    def dependent(self) -> bool:
        """Gone: no method changes its statistics by itself."""
        raise AttributeError("signals.dependent is gone: a warning says where a dependent stream harms a method.")
