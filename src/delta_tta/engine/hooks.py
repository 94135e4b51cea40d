"""Where a guard may step in on the way of a batch; without a guard nothing happens there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from torch import Tensor

from ..prediction import Prediction
from ..signals import Skip


class Check(Protocol):
    """Looks at predictions and may warn."""

    def look(self, prediction: Prediction) -> None:
        """Look at those of one batch."""

    def reset(self) -> None:
        """Begin to look again."""


class Hooks:
    """No guard. A guard overrides what it wants to do.

    Attributes:
        on: whether there is a guard: then what is not finite is answered by the source instead of an error.
        refused: batches that were not learnt from because something was wrong with them.
        rollbacks: collapses that were undone.
    """

    on = False
    refused = 0
    rollbacks = 0

    def __init__(self, check: Check | None = None) -> None:
        self._check = check

    def attempt(self) -> Callable[[], AbstractContextManager[None]]:
        """Return what surrounds the parts of a batch: where one fails, the batch was never counted."""
        return nullcontext

    def before_answer(self, x: Tensor, logits: Tensor) -> Skip | None:
        """Look at a batch before it is answered; say why the answer is to come from another state, if so."""
        return None

    def before_commit(self, samples: int, of_source: Callable[[], Tensor]) -> Skip | None:
        """Say why nothing is to be learnt from a batch, if so.

        Args:
            samples: how many there are, on all ranks.
            of_source: runs the source on it.
        """
        return None

    def refuse(self, why: Skip) -> None:
        """Count a batch that was not learnt from because something about it is wrong."""

    def restarted(self) -> None:
        """Learning has begun again from the source."""

    def after_commit(self, prediction: Prediction) -> None:
        """Look at the predictions that were learnt from."""
        if self._check is not None:
            self._check.look(prediction)

    def reset(self) -> None:
        """Forget everything."""
        if self._check is not None:
            self._check.reset()

    def memory(self) -> dict[str, Any]:
        """Return what must be saved."""
        return {}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Go on from what was saved."""
