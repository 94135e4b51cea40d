"""Runs the model again on a batch that was answered, as it was run: in the same precision, with the same statistics."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from ..tensors import at_least_float32
from .forward import Forward


class Again:
    """One batch and the model that answered it; nothing is observed or remembered."""

    def __init__(self, forward: Forward, x: Tensor, kind: str) -> None:
        self.x = x
        self._forward, self._kind, self._autocast = forward, kind, torch.is_autocast_enabled(kind)

    def of_source(self) -> Tensor:
        """Run the source on the batch."""
        with self._as_run():
            return self._forward.logits_of_source(self.x)

    def on(self, images: Tensor) -> Tensor:
        """Run the model on other images, without gradient."""
        with self._as_run(), self._forward.in_phase("replaying"), torch.no_grad():
            return self._forward.logits(images)

    def learnable(self, images: Tensor | None = None) -> Tensor:
        """Run the model on the batch, or on other images, with gradient; the logits are those of all ranks."""
        with self._as_run(), self._forward.in_phase("replaying"):
            logits = self._forward.learnable(self.x if images is None else images)
        ranks = self._forward.ranks
        return logits if ranks is None else ranks.join(at_least_float32(logits))

    def _as_run(self) -> AbstractContextManager[object]:
        return torch.autocast(self._kind, enabled=self._autocast)
