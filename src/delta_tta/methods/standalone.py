"""Base of the standalone methods that augment images and train all parameters."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..augmentations.pixels import Pixels
from ..engine.model import AdaptedModel
from ..engine.step import Updater
from ..errors import ModelError
from ..options import PixelOptions
from ..recipe import Recipe
from ..settings import Settings


class StandaloneUpdater(Updater):
    """An updater that trains all parameters; it may run the model with several sets of them."""

    Options: ClassVar[type | None] = PixelOptions
    learns = True
    synchronises = False

    def __init__(self, adapted: AdaptedModel, recipe: Recipe, settings: Settings) -> None:
        super().__init__(adapted, recipe, settings)
        self._pixels = Pixels(adapted.model, settings)
        half = [name for name, p in adapted.parameters.items() if p.dtype in (torch.float16, torch.bfloat16)]
        if half:
            raise ModelError(
                f"Method '{recipe}' trains all parameters, and in half precision ({half[0]}) its steps would be "
                "rounded away. Give the model in float32, and run it under torch.autocast."
            )

    def logits(self, x: Tensor) -> Tensor:
        """Run the model; autocast may not answer with weights it remembers from another set of parameters."""
        remembers = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)
        try:
            return super().logits(x)
        finally:
            torch.set_autocast_cache_enabled(remembers)
