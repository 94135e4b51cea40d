"""Base of the post-processing components: they change the logits, not the model."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from ..distributed import Ranks
from ..registry import Capabilities, State
from ..settings import Settings


class Postprocess(Capabilities):
    """Turns a batch and its logits into the logits that the caller gets; learning never sees these.

    Attributes:
        compares: whether the answer to a sample depends on the others of its batch.
        least_classes: which it can work with.
        reads_features: whether it needs the features of the run that made the logits.
        runs_parts: whether it runs the model on a part of the batch.
        learns: whether it answers with what it has kept of the batches before.
        ranks: the processes whose batches count as one.
        memory: what is remembered between batches; empty means: as new.
        pending: what will be remembered if the batch is learnt from.
    """

    compares = False
    least_classes = 1
    reads_features = False
    runs_parts = False
    learns = False
    synchronises = False
    bakes = False
    ranks: Ranks | None = None

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        self.settings = settings
        self.memory: State = {}
        self.pending: State | None = None

    def commit(self) -> None:
        """Remember the batch that was answered last."""
        self.memory, self.pending = self.memory if self.pending is None else self.pending, None

    def reset(self) -> None:
        """Forget everything."""
        self.memory, self.pending = {}, None

    def __call__(self, x: Tensor, logits: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Return new logits, (B, K); `run` answers other images with the present model."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the model as it was."""
