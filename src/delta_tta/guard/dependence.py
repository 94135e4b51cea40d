"""Warns, once, where each batch's own statistics mislead because batches are unlike each other."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from ..evidence import of_order, tempered
from ..prediction import Prediction
from ..recipe import Recipe
from ..rules.filters import DOUBT, PRIOR

log = logging.getLogger("delta_tta")

BATCHES = 16
"""From the first on, that are looked at."""


class DependenceCheck:
    """Looks at the order of the answers of a method that normalises with each batch's own statistics."""

    def __init__(self, recipe: Recipe) -> None:
        self._method, self._instead = str(recipe), str(replace(recipe, statistics="anchored"))
        self.reset()

    def reset(self) -> None:
        """Begin to look again."""
        self._left, self._evidence, self._samples, self._sum = BATCHES, 0.0, PRIOR, np.zeros((0, 0), np.float32)

    def look(self, prediction: Prediction) -> None:
        """Look at one batch."""
        if not self._left or len(prediction.label) < 2:
            return
        self._left -= 1
        p = tempered(prediction.log_p.detach().float().cpu().numpy())
        size, classes = p.shape[1:]
        before = self._sum if self._samples > PRIOR else np.full((len(p), classes), PRIOR / classes, np.float32)
        self._sum, self._samples = before + p.sum(1), self._samples + size
        self._evidence += of_order(p, self._sum / np.float32(self._samples))
        if self._evidence > 2 * DOUBT:
            self._left = 0
            log.warning(
                "delta-tta: samples of one class follow each other in this stream, and %r normalises each batch by "
                "itself, which then misleads; write %r", self._method, self._instead
            )  # fmt: skip
