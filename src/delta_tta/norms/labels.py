"""The labels that a model gives to a batch, for norm layers that keep statistics by class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Labels:
    """The predicted classes of one batch, grouped once for all layers.

    Attributes:
        classes: K.
        present: the classes that occur, (k,).
        group: of each sample, the place of its class among those, (B,).
        counts: how many samples each of them has, (k,).
    """

    classes: int
    present: Tensor
    group: Tensor
    counts: Tensor

    @classmethod
    def of(cls, logits: Tensor) -> Labels:
        """Group the predictions of a batch by class."""
        present, group, counts = torch.unique(logits.argmax(1), return_inverse=True, return_counts=True)
        return cls(logits.shape[1], present, group, counts)
