"""ROID (Marsden, Döbler, Yang 2024): certain and diverse samples train; the weights stay near the source's.

With p the prediction of a sample, p̄ a moving average of the mean prediction, and r(·) the mapping of a batch's values
to 0 … 1,

    w = exp(r(1 − cos(p̄, p)) · r(−H(p)) / T), and 0 where the first factor is below its mean,
    L = (1/B) Σ w (−Σ_k p_k log(p_k / (1 − p_k) + 1e-5)  +  SCE(p, p')),

p' the prediction of an augmented view, made of the samples with w > 0. After each step θ ← m θ + (1 − m) θ_source. The
answer, from before the step, is corrected by the prior of the batch (postprocess/prior.py).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..augmentations.pixels import Pixels
from ..augmentations.views import light_views
from ..engine.again import Again
from ..engine.descent import losses
from ..engine.draws import numbers
from ..engine.loss import Loss
from ..engine.model import AdaptedModel
from ..engine.optimizer import make_optimizer
from ..engine.step import Updater
from ..errors import SettingError
from ..losses import roid_weights, soft_likelihood_ratio, symmetric_cross_entropy
from ..norms.batch import BatchStatistics
from ..objectives import Objective
from ..options import OptimizerOptions, PixelOptions, SeedOptions
from ..postprocess.prior import PriorCorrection
from ..prediction import Prediction
from ..recipe import Recipe
from ..registry import State, component
from ..settings import Settings, on_cifar


@dataclass(frozen=True)
class LossOptions(SeedOptions, PixelOptions, OptimizerOptions):
    """Settings of ROID's losses.

    Attributes:
        roid_temperature: T of the weights.
        roid_average: share of the average prediction p̄ that stays at each batch.
    """

    roid_temperature: float = 1 / 3
    roid_average: float = 0.9

    unbounded: ClassVar[tuple[str, ...]] = ("roid_temperature",)

    def __post_init__(self) -> None:
        """Those of the losses are shares, but for the unbounded ones."""
        super().__post_init__()
        for field in dataclasses.fields(self):
            if "_" not in field.name:
                continue
            value = getattr(self, field.name)
            free = field.name in self.unbounded
            if not (0 < value < math.inf if free else 0 <= value <= 1):
                right = "greater than 0 and finite" if free else "between 0 and 1"
                raise SettingError(f"Expected setting `{field.name}` to be {right}, but got {value!r}.")


@dataclass(frozen=True)
class RoidOptions(LossOptions):
    """Settings of ROID.

    Attributes:
        roid_momentum: m, the share of the weights that stays when they are averaged with the source's.
    """

    roid_momentum: float = 0.99


class WeightedLikelihoodRatio(Objective):
    """The soft likelihood ratio of the samples that train, by their weights; state: p̄, (K,), and counted steps."""

    def __init__(self, settings: Settings, options: LossOptions) -> None:
        super().__init__(settings)
        self.options = options

    def weights(self, prediction: Prediction, state: State) -> Tensor:
        """Return w, (B,)."""
        entropies, average = prediction.entropy.detach(), self._average(prediction, state)
        return roid_weights(prediction.p, entropies, average, self.options.roid_temperature)

    def loss(self, prediction: Prediction, state: State) -> tuple[Tensor, Tensor | None]:
        """Samples with a weight train."""
        weights = self.weights(prediction, state)
        return weights * soft_likelihood_ratio(prediction.log_p), weights > 0

    def next_state(self, prediction: Prediction, state: State, selected: Tensor | None) -> State:
        """Move p̄; all samples count."""
        average = torch.lerp(prediction.p.mean(0), self._average(prediction, state), self.options.roid_average)
        return {**state, "average": average, "step": torch.tensor(float(steps(state) + 1))}

    @staticmethod
    def _average(prediction: Prediction, state: State) -> Tensor:
        uniform = prediction.p.new_full((prediction.classes,), 1 / prediction.classes)
        return state.get("average", uniform)


class Ensembling(Updater):
    """ROID without its weight ensembling: trains norm parameters; normalises with each batch's own statistics."""

    Options: ClassVar[type | None] = LossOptions
    defaults: ClassVar[Mapping[str, Any]] = {"optimizer": "sgd", "lr": 2.5e-4, "reduction": "batch"}
    defaults_by_preset: ClassVar[Mapping[str, Mapping[str, Any]]] = on_cifar(optimizer="adam", lr=1e-3)
    trains = "norms"
    synchronises = False
    bakes = False
    cost = 6.0

    layers = BatchStatistics

    def __init__(self, adapted: AdaptedModel, recipe: Recipe, settings: Settings) -> None:
        super().__init__(adapted, recipe, settings)
        self._pixels = Pixels(adapted.model, settings)
        self._losses = settings.options(LossOptions)
        self.objective: WeightedLikelihoodRatio = WeightedLikelihoodRatio(settings, self._losses)
        self.postprocess = PriorCorrection(adapted.model, settings)

    def _start_training(self) -> None:
        self.optimizer = make_optimizer(list(self.adapted.parameters.values()), self.settings, nesterov=True)

    def _observed(self, x: Tensor) -> Tensor:
        self._pixels.of(x)  # raises now, not in the background, where the images cannot be augmented
        return super()._observed(x)

    def _descent(self, prediction: Prediction, again: Again) -> tuple[Loss, list[Tensor | None]]:
        """Add the consistency with a view; both logits train."""
        found = losses(self, self.objective, prediction)
        weights = self.objective.weights(prediction, self.objective_memory)
        rows = weights > 0
        draws = numbers(self._losses.seed, steps(self.objective_memory))
        images = self._pixels.back(light_views(self._pixels.of(again.x[rows]), draws), again.x)
        # Torch 2.13 crashes in the backward pass of a GroupNorm on a CPU in another layout, if its input needs no
        # gradient.
        view = Prediction(again.learnable(images.contiguous()))
        consistency = weights[rows] * symmetric_cross_entropy(view.log_p, prediction.log_p[rows])
        found = dataclasses.replace(found, value=found.value + consistency.sum() / len(weights))
        return found, self.gradients(found.value)

    def _commit(self, prediction: Prediction, gradients: list[Tensor | None], found: Loss | None) -> None:
        super()._commit(prediction, gradients, found)
        with torch.no_grad():
            self._ensemble()

    def _ensemble(self) -> None:
        """Average the weights with others."""
        raise NotImplementedError


@component(
    "roid",
    "standalone",
    "train on certain and diverse samples, stay near the source, correct the prior (ROID, Marsden et al. 2024)",
    alone=True,
    has=("prior-correction",),
)
class Roid(Ensembling):
    """Stays near the source."""

    Options = RoidOptions

    def _ensemble(self) -> None:
        share = self.settings.options(RoidOptions).roid_momentum
        average_into(self.adapted.parameters, self.adapted.source, share)


def average_into(parameters: Mapping[str, Tensor], others: Mapping[str, Tensor], share: float) -> None:
    """θ ← share · θ + (1 − share) · other (weight ensembling)."""
    for name, p in parameters.items():
        p.copy_(share * p + (1 - share) * others[name].to(p))


def steps(state: State) -> int:
    """Return how many batches were learnt from: a saved state goes on with the same random numbers."""
    return int(state["step"]) if "step" in state else 0
