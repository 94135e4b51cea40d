"""The limits that a user may set for the guard; `guard/monitor.py` is the guard at work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import SettingError
from .removed import refuse_removed


@dataclass(frozen=True)
class Guard:
    """The thresholds of the guard: `adapt(model, method, guard=Guard(agreement=0.8))`.

    Attributes:
        agreement: least share of the samples on which the model must agree with itself before training.
        samples: how many are compared before a verdict, over several batches where these are small.
        every: batches between two verdicts; at first fewer: at the batches 2, 4, 8, …
        cooling: factor of the learning rate after each rollback.
        reach: how many times wider, narrower or farther off than the source's a layer's statistics may be before a
            batch is taken for garbage, such as images in 0 to 255 where 0 to 1 was meant, and not learnt from.
        alike: share of the variance of a batch's features by which its samples must differ from each other; a batch far
            from the source with less is taken for blank frames, such as those of a covered lens, and not learnt from;
            0 for none.
    """

    agreement: float = 0.6
    samples: int = 48
    every: int = 48
    cooling: float = 0.01
    reach: float = 100.0
    alike: float = 0.05

    def __new__(cls, *args: Any, **given: Any) -> Guard:
        """Refuse limits that are gone."""
        refuse_removed("Guard", given)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        fine = {
            "agreement": (0 <= self.agreement <= 1, "between 0 and 1"),
            "samples": (self.samples >= 1, "at least 1"),
            "every": (self.every >= 1, "at least 1"),
            "cooling": (0 < self.cooling <= 1, "greater than 0 and at most 1"),
            "reach": (self.reach > 1, "greater than 1"),
            "alike": (0 <= self.alike <= 1, "between 0 and 1"),
        }
        for name, (holds, words) in fine.items():
            if not holds:
                raise SettingError(f"Expected `{name}` of Guard to be {words}, but got {getattr(self, name)!r}.")
