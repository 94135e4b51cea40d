"""How samples are weighed: DOT, dynamic online reweighting (Zhao, Chen, Xia 2023, Algorithm 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from .prediction import Prediction
from .settings import Settings
from .words import State, word

EPSILON = 1e-8
"""ε of Algorithm 1, line 6; the paper gives no value."""


class Reweighting:
    """Base of the reweightings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def weights(self, prediction: Prediction, state: State) -> Tensor:
        """Return the weight of each sample, (B,), without gradient; the batch averages 1."""
        raise NotImplementedError

    def next_state(self, prediction: Prediction, state: State) -> State:
        """Return what to remember after this batch."""
        return state


@word("dot", "reweighting", "weigh samples against the class frequencies seen so far (DOT)", part=True)
class Dot(Reweighting):
    """Frequent classes weigh less; z is the running estimate of their frequencies."""

    def weights(self, prediction: Prediction, state: State) -> Tensor:
        """Lines 5 to 7, with z_{t−1}; "soft" takes the expectation over p instead of the predicted class."""
        rarity = 1 / (self._z(prediction, state) + EPSILON)  # (K,)
        w = prediction.p @ rarity if self.settings.dot == "soft" else rarity[prediction.label]  # (B,)
        return w / w.mean()

    def next_state(self, prediction: Prediction, state: State) -> State:
        """Line 10: z_t = λ z_{t−1} + (1−λ) mean_B p."""
        return {"z": torch.lerp(prediction.p.mean(0), self._z(prediction, state), self.settings.lam)}

    def _z(self, prediction: Prediction, state: State) -> Tensor:
        if "z" in state:
            return state["z"]
        return prediction.p.new_full((prediction.classes,), 1 / prediction.classes)
