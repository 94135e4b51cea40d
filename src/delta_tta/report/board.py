"""Finished runs for TensorBoard: the accuracy along the stream of each."""

from __future__ import annotations

from pathlib import Path

from ..errors import install
from ..experiments.runner import RunProgress
from .runs import trailing_mean, window_of

WINDOW = 320


class Board:
    """Called with the progress of a run; writes each cell once, into a separate folder."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(f"TensorBoard is needed: {install('tensorboard')}.") from error
        self._folder, self._writer = folder, SummaryWriter
        self._last: object = None

    def __call__(self, progress: RunProgress) -> None:
        """Write what was finished last, if it was not yet."""
        if progress.last is None or progress.last is self._last:
            return
        self._last = progress.last
        cell, event = progress.last
        result = event.result
        assert result is not None
        name = "".join(c if c.isalnum() or c in "+-=._" else "_" for c in str(cell))
        with self._writer(str(self._folder / name)) as writer:
            seen, line = trailing_mean(result.trace.correct, min(WINDOW, window_of(len(result.trace.labels))))
            step = max(1, len(seen) // 200)
            for samples, share in zip(seen[::step], line[::step], strict=True):
                writer.add_scalar("accuracy over the stream", 100 * float(share), int(samples))
            for label in ("class_mean_accuracy", "accuracy", "ece", "seconds"):
                writer.add_scalar(label, float(getattr(result, label)), 0)
