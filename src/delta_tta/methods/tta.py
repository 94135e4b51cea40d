"""TTA: the mean of the logits over the image and augmented views of it; the model stays as it is."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..answers import Answer
from ..settings import Settings
from ..words import word
from .augment import views
from .pixels import Pixels


@word("tta", "answer", "average the logits over augmented views", alone=True)
class Tta(Answer):
    """Every call draws the same views, so that the same batch gets the same answer."""

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        super().__init__(model, settings)
        self._pixels = Pixels(model, settings)

    def __call__(self, x: Tensor, logits: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the mean over 1 + `views` answers."""
        generator = torch.Generator().manual_seed(self.settings.seed)
        total = logits.clone()
        clean = self._pixels.of(x)
        for _ in range(self.settings.views):
            total += run(self._pixels.back(views(clean, generator), x))
        return total / (1 + self.settings.views)
