"""Base of the words that change the answer, not the model."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from .settings import Settings


class Answer:
    """Turns a batch and its logits into the logits that the caller gets; learning never sees these.

    Attributes:
        compares: whether the answer to a sample depends on the others of its batch.
        least_classes: which it can work with.
    """

    compares = False
    least_classes = 1

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        self.settings = settings

    def __call__(self, x: Tensor, logits: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Return new logits, (B, K); `run` answers other images with the model as it is."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the model as it was."""
