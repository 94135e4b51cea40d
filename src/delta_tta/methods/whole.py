"""Base of the learners that augment images, train all parameters and run the model with several sets of them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ModelError
from ..learner import Learner
from ..recipe import Recipe
from ..settings import Settings
from ..subject import Subject
from .pixels import Pixels


class WholeLearner(Learner):
    """A learner of its own kind, behind the contract of all."""

    learns = True

    def __init__(self, subject: Subject, recipe: Recipe, settings: Settings) -> None:
        super().__init__(subject, recipe, settings)
        self._pixels = Pixels(subject.model, settings)
        half = [name for name, p in subject.parameters.items() if p.dtype in (torch.float16, torch.bfloat16)]
        if half:
            raise ModelError(
                f"Method '{recipe}' trains all parameters, and in half precision ({half[0]}) its steps would be "
                "rounded away. Give the model in float32, and run it under torch.autocast."
            )

    def _logits(self, x: Tensor) -> Tensor:
        """Run the model; autocast may not answer with weights it remembers from another set of parameters."""
        remembers = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)
        try:
            return super()._logits(x)
        finally:
            torch.set_autocast_cache_enabled(remembers)
