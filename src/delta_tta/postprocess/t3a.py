"""T3A (Iwasawa, Matsuo 2021): classify by the mean direction of the surest features of each class so far.

Every class has a support set of feature vectors z / |z|, which starts with the classifier's weights. A sample joins the
set of the class that the model predicts, with the entropy of that prediction; each set keeps the M of lowest entropy.
The score of class k is z · c_k / |c_k|, with c_k the sum of its set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import ModelError, SettingError
from ..options import Options
from ..prediction import Prediction
from ..registry import State, component
from ..settings import Settings
from ..tensors import at_least_float32
from .features import FeaturePostprocess


@dataclass(frozen=True)
class T3aOptions(Options):
    """Settings of T3A.

    Attributes:
        t3a_supports: M, how many feature vectors a class keeps.
    """

    t3a_supports: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.t3a_supports < 1:
            raise SettingError(
                f"Expected `t3a_supports` to be at least 1, but got {self.t3a_supports}. A set without a bound would "
                "grow as long as the stream lasts."
            )


@component(
    "t3a",
    "postprocess",
    "classify by the mean of each class's surest features (T3A, Iwasawa & Matsuo 2021)",
    alone=True,
    part=True,
)
class T3a(FeaturePostprocess):
    """Remembers `supports` (N, D) with their `labels` and `entropies` (N,); at most M of each class."""

    Options = T3aOptions
    title = "T3A"
    learns = True

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        super().__init__(model, settings)
        self._most = settings.options(T3aOptions).t3a_supports

    def __call__(self, x: Tensor, logits: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the scores, (B, K); the samples of the batch are among the supports."""
        with torch.autocast(logits.device.type, enabled=False):
            features = self._tap.take(len(logits))
            prediction = Prediction(logits)
            own = supports_of(features, prediction)
            before = self.memory or self._start(prediction.classes)
            self.pending = surest({key: torch.cat([before[key], own[key]]) for key in own}, self._most)
            scores = features @ prototypes(self.pending, prediction.classes).T
            # a class that the model masks by −∞ stays masked
            return scores.masked_fill(prediction.logits.isneginf(), -torch.inf).to(logits.dtype)

    def _start(self, classes: int) -> State:
        """Return the weights of the classifier, each with the prediction that the classifier makes of it."""
        layer = self._tap.layer
        if not isinstance(layer, nn.Linear) or layer.out_features != classes:
            raise ModelError(
                f"T3A starts from the weights of the classifier, a linear layer with {classes} outputs, but the one "
                f"that it found is {layer}. Name it: features='...'."
            )
        weight = at_least_float32(layer.weight.detach())
        bias = None if layer.bias is None else at_least_float32(layer.bias.detach())
        return supports_of(weight, Prediction(F.linear(weight, weight, bias)))


def supports_of(features: Tensor, prediction: Prediction) -> State:
    """Return what features, (B, D), with these predictions bring into the sets; what is not finite stays out."""
    entropies = prediction.entropy.detach().to(features)
    fine = entropies.isfinite() & features.isfinite().all(1)
    # labels as numbers of the features' type: a state moves with its model, and only such do
    found = {"supports": F.normalize(features, dim=1), "labels": prediction.label.to(features), "entropies": entropies}
    return {key: value[fine] for key, value in found.items()}


def surest(state: State, most: int) -> State:
    """Return the supports, of each class at most so many of lowest entropy, the older first where two are equal."""
    order = state["entropies"].argsort(stable=True)
    labels = state["labels"][order]
    by_class = labels.argsort(stable=True)
    labels, order = labels[by_class].contiguous(), order[by_class]
    rank = torch.arange(len(labels), device=labels.device) - torch.searchsorted(labels, labels)
    kept = order[rank < most]
    return {key: value[kept] for key, value in state.items()}


def prototypes(state: State, classes: int) -> Tensor:
    """Return the mean direction of each class, (K, D); 0 where a class has no support."""
    supports = state["supports"]
    sums = supports.new_zeros(classes, supports.shape[1]).index_add_(0, state["labels"].long(), supports)
    return F.normalize(sums, dim=1)
