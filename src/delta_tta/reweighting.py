"""How samples are weighed: DOT (Zhao, Chen, Xia 2023, Algorithm 1), and the rivals the paper compares it with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from .functional import EPSILON, class_frequencies, dot_weights
from .losses import divergence_from_uniform
from .options import Options, SimilarityOptions, require
from .prediction import Prediction
from .registry import Capabilities, State, component
from .settings import Settings
from .similarity import differs, next_average

KAPPA = 0.9
"""κ of KL-div, as Mummadi et al. have it: the share of the old average that stays at each batch."""


class Reweighting(Capabilities):
    """Base of the reweightings: each may enter the loss in one or several of these ways."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def adjusted(self, prediction: Prediction, state: State) -> Prediction:
        """Return what the objective is to see instead of the prediction."""
        return prediction

    def select(self, prediction: Prediction, selected: Tensor | None, state: State) -> Tensor | None:
        """Return which of the samples the objective selected train, (B,), or None for all."""
        return selected

    def weights(self, prediction: Prediction, state: State) -> Tensor | None:
        """Return the weight of each sample, (B,), without gradient, averaging 1; None for equal weights."""
        return None

    def penalty(self, prediction: Prediction, state: State) -> Tensor | None:
        """Return what is added to the loss, with gradient."""
        return None

    def next_state(self, prediction: Prediction, state: State, selected: Tensor | None) -> State:
        """Return what to remember after this batch."""
        return state

    def frequencies(self, state: State) -> Tensor | None:
        """Return a copy of the estimated class frequencies, (K,), if there are any."""
        return None


@dataclass(frozen=True)
class FrequencyOptions(Options):
    """Settings of what estimates the class frequencies.

    Attributes:
        lam: λ of DOT, the share of the old class frequencies that stays at each batch.
    """

    lam: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        require("lam", self.lam, 0 <= self.lam <= 1, "between 0 and 1")


class Frequencies(Reweighting):
    """Base of those that estimate the class frequencies z."""

    Options: ClassVar[type | None] = FrequencyOptions

    def next_state(self, prediction: Prediction, state: State, selected: Tensor | None) -> State:
        """Line 10: z_t = λ z_{t−1} + (1−λ) mean_B p."""
        lam = self.settings.options(FrequencyOptions).lam
        return {"z": class_frequencies(self.z(prediction, state), prediction.p, lam)}

    def frequencies(self, state: State) -> Tensor | None:
        """Return a copy of z."""
        return state["z"].clone() if "z" in state else None

    def z(self, prediction: Prediction, state: State) -> Tensor:
        """Return z_{t−1}, (K,); uniform at first."""
        if "z" in state:
            return state["z"]
        return prediction.p.new_full((prediction.classes,), 1 / prediction.classes)


@dataclass(frozen=True)
class DotOptions(FrequencyOptions):
    """Settings of DOT.

    Attributes:
        dot: how DOT weighs a sample, by its predicted class ("hard") or by all its probabilities ("soft").
    """

    dot: Literal["hard", "soft"] = "hard"


@component("dot", "reweighting", "weigh samples against the class frequencies seen so far (DOT)", part=True)
class Dot(Frequencies):
    """Frequent classes weigh less; z is the running estimate of their frequencies."""

    Options = DotOptions

    def weights(self, prediction: Prediction, state: State) -> Tensor:
        """Lines 5 to 7, with z_{t−1}; "soft" takes the expectation over p instead of the predicted class."""
        answers = prediction.p if self.settings.options(DotOptions).dot == "soft" else prediction.label
        return dot_weights(answers, self.z(prediction, state))


@component(
    "la", "reweighting", "add log class frequencies to the logits of the loss (LA, Menon et al. 2021)", part=True
)
class LogitAdjustment(Frequencies):
    """The objective sees z + log frequency: a rare class must be said with more confidence."""

    def adjusted(self, prediction: Prediction, state: State) -> Prediction:
        """Shift the logits by log z_{t−1}."""
        return Prediction(prediction.logits + (self.z(prediction, state) + EPSILON).log())


@component("div-w", "reweighting", "train on samples unlike those seen before (Div-W, Niu et al. 2022)", part=True)
class Diversity(Reweighting):
    """ETA's similarity filter behind any objective."""

    Options = SimilarityOptions

    def select(self, prediction: Prediction, selected: Tensor | None, state: State) -> Tensor | None:
        """Drop what is similar to the average."""
        return differs(prediction, selected, state, self.settings.options(SimilarityOptions).similarity)

    def next_state(self, prediction: Prediction, state: State, selected: Tensor | None) -> State:
        """Move the average of the predictions that trained."""
        return next_average(prediction, selected, state)


@dataclass(frozen=True)
class KlOptions(Options):
    """Settings of KL-div.

    Attributes:
        kl_weight: w of KL-div.
    """

    kl_weight: float = 100.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require("kl_weight", self.kl_weight, 0 <= self.kl_weight < math.inf, "at least 0 and finite")


@component("kl-div", "reweighting", "pull the mean prediction to uniform (KL-div, Mummadi et al. 2021)", part=True)
class KlDivergence(Reweighting):
    """Adds w · KL(q_t ‖ uniform) to the loss; q_t = κ q_{t−1} + (1−κ) mean_B p, uniform at first.

    A batch smaller than the number of classes cannot be uniform; the moving average can.
    """

    Options = KlOptions

    def penalty(self, prediction: Prediction, state: State) -> Tensor:
        """W · KL(q_t ‖ uniform); the gradient comes by the share of this batch."""
        q = self._moved(prediction.log_p.exp().mean(0), state)
        return self.settings.options(KlOptions).kl_weight * divergence_from_uniform(q)

    def next_state(self, prediction: Prediction, state: State, selected: Tensor | None) -> State:
        """Move the average, whether or not a sample trained."""
        return {"average": self._moved(prediction.p.mean(0), state)}

    @staticmethod
    def _moved(mean: Tensor, state: State) -> Tensor:
        before = state["average"] if "average" in state else torch.full_like(mean, 1 / len(mean))
        return KAPPA * before + (1 - KAPPA) * mean


@component("sample-drop", "reweighting", "leave out samples of the classes used most (Zhao et al. 2023)", part=True)
class SampleDrop(Reweighting):
    """Counts the predicted classes of the samples that trained; those above the average count do not train."""

    def select(self, prediction: Prediction, selected: Tensor | None, state: State) -> Tensor | None:
        """Drop samples whose class was used more than the average class."""
        if "counts" not in state:
            return selected
        counts = state["counts"]
        minor = (counts <= counts.mean())[prediction.label]
        return minor if selected is None else selected & minor

    def next_state(self, prediction: Prediction, state: State, selected: Tensor | None) -> State:
        """Count what trained."""
        used = prediction.label if selected is None else prediction.label[selected]
        counts = torch.bincount(used, minlength=prediction.classes).to(prediction.p.dtype)
        return {"counts": state["counts"] + counts if "counts" in state else counts}
