"""What is minimised: each objective gives every sample of the batch a loss and says which samples train."""

from __future__ import annotations

import math

from torch import Tensor

from .errors import SettingError
from .prediction import Prediction
from .settings import Settings
from .words import State, word


class Objective:
    """Base of the objectives; a stateless one only writes `loss`."""

    default_threshold = 0.0

    def __init__(self, settings: Settings) -> None:
        given = settings.threshold
        self.threshold = self.default_threshold if given is None else given

    def loss(self, prediction: Prediction, state: State) -> tuple[Tensor, Tensor | None]:
        """Return the loss of each sample, (B,), and which samples train, (B,) or None for all."""
        raise NotImplementedError

    def next_state(self, prediction: Prediction, state: State, selected: Tensor | None) -> State:
        """Return what to remember after this batch."""
        return state


@word("tent", "objective", "minimise the entropy of each prediction (TENT, Wang et al. 2021)", alone=True)
class Tent(Objective):
    """L = H."""

    def loss(self, prediction: Prediction, state: State) -> tuple[Tensor, Tensor | None]:
        """Every sample trains."""
        return prediction.entropy, None


@word("pl", "objective", "train on confident predictions as if they were labels (PL, Lee 2013)", alone=True)
class PseudoLabel(Objective):
    """L = −log p[y*] where p[y*] ≥ τ."""

    default_threshold = 0.4

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if self.threshold > 1:
            raise SettingError(f"Expected `threshold` of PL, a confidence, to be at most 1, but got {self.threshold}.")

    def loss(self, prediction: Prediction, state: State) -> tuple[Tensor, Tensor | None]:
        """Confident samples train."""
        y = prediction.label.unsqueeze(1)
        confidence = prediction.p.gather(1, y).squeeze(1)
        return -prediction.log_p.gather(1, y).squeeze(1), confidence >= self.threshold


@word("ent-w", "objective", "entropy of the sure samples, the surer the heavier (Niu et al. 2022)", alone=True)
class EntropyWeighted(Objective):
    """L = sg(e^{τ−H}) · H where H < τ; τ is the threshold times ln K."""

    default_threshold = 0.5

    def loss(self, prediction: Prediction, state: State) -> tuple[Tensor, Tensor | None]:
        """Samples below the margin train."""
        tau = self.threshold * math.log(prediction.classes)
        h = prediction.entropy.detach()
        return (tau - h).exp() * prediction.entropy, h < tau
