"""A model that knows more classes than the data has."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..errors import ModelError


class Outputs(nn.Module):
    """A classifier that answers with some of its outputs only, such as the 200 of 1000 classes in ImageNet-R.

    Adapt it like any model: entropy and class frequencies then live on the kept classes, as the paper has it.
    """

    def __init__(self, model: nn.Module, outputs: Sequence[int]) -> None:
        super().__init__()
        if not len(outputs) or min(outputs) < 0 or len(set(outputs)) != len(outputs):
            raise ModelError("Expected `outputs` to be different numbers from 0, at least one.")
        self.model = model
        if hasattr(model, "normalisation"):
            self.normalisation = model.normalisation
        self.outputs: Tensor
        self.register_buffer("outputs", torch.tensor(list(outputs)), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the kept logits, (B, len(outputs))."""
        logits: Tensor = self.model(images)
        return logits.index_select(1, self.outputs)
