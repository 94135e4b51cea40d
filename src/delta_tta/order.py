"""Warns, once, where each batch's own statistics mislead because batches are unlike each other."""

from __future__ import annotations

import logging
from dataclasses import replace

from .prediction import Prediction
from .recipe import Recipe
from .sticky import DOUBT, PRIOR, evidence_of, tempered

log = logging.getLogger("delta_tta")

BATCHES = 16
"""From the first on, that are looked at."""


class Order:
    """Looks at the order of the answers of a method that normalises with each batch's own statistics."""

    def __init__(self, recipe: Recipe) -> None:
        part = "anchored" if recipe.objective is None else f"{recipe.objective}+anchored"
        self._instead = f"{replace(recipe, statistics='anchored') if recipe.objective else part}"
        self._method = str(recipe)
        self.reset()

    def reset(self) -> None:
        """Begin to look again."""
        self._left, self._evidence = BATCHES, 0.0

    def look(self, prediction: Prediction) -> None:
        """Look at one batch."""
        if not self._left or len(prediction.label) < 2:
            return
        self._left -= 1
        p = tempered(prediction.log_p.detach().float().cpu().numpy())
        size, classes = p.shape[1:]
        q = (p.sum(1) + PRIOR / classes) / (size + PRIOR)
        self._evidence += evidence_of(p, q)
        if self._evidence > 2 * DOUBT:
            self._left = 0
            log.warning(
                "delta-tta: samples of one class follow each other in this stream, and %r normalises each batch by "
                "itself, which then misleads; write %r", self._method, self._instead
            )  # fmt: skip
