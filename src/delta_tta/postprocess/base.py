"""Bases of the components that change the logits, not the model: post-processing, and filters over the stream."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from ..distributed import Ranks
from ..evidence import Array
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


class Filter(Capabilities):
    """Filters the answers in the order of the stream; only `commit` changes its state.

    Attributes:
        reads_sharpness: whether `answer` is given the sharpness of the images.
    """

    reads_sharpness = False

    def __init__(self, settings: Settings) -> None:
        self.reset()

    @property
    def stays(self) -> float | None:
        """How likely the class is thought to stay, 0 to 1; None if the filter does not know."""
        return None

    def reset(self) -> None:
        """Forget the streams."""
        raise NotImplementedError

    def answer(
        self, logits: Tensor, streams: Sequence[Hashable] | None = None, sharpness: Array | None = None
    ) -> tuple[Tensor, Any]:
        """Return the filtered logits, (B, K), and the state after this batch.

        Args:
            logits: (B, K), in the order of time.
            streams: of each sample, the stream (camera, video) it belongs to; None: all to one.
            sharpness: of each sample, (B,), if the class `reads_sharpness`; None where there is none to be had.
        """
        raise NotImplementedError

    def commit(self, state: Any) -> None:
        """Go on from what `answer` returned."""
        raise NotImplementedError

    def remembered(self) -> dict[str, Any]:
        """Return what must be saved."""
        raise NotImplementedError

    def fits(self, memory: Mapping[str, Any], classes: int | None) -> bool:
        """Whether a filter over so many classes may have remembered this; None: it answered, and nothing was learnt."""
        raise NotImplementedError

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Go on from what was remembered."""
        raise NotImplementedError
