"""What is minimised: each objective gives every sample of the batch a loss and says which samples train."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from .errors import SettingError
from .losses import entropy_weights, fisher_penalty, pseudo_label_cross_entropy
from .options import ObjectiveOptions, Options, SimilarityOptions, ThresholdOptions, require
from .prediction import Prediction
from .registry import Capabilities, State, component
from .settings import Settings, on_cifar
from .similarity import differs, next_average


class Objective(Capabilities):
    """Base of the objectives; a stateless one only writes `loss`.

    Attributes:
        sharpness: ρ; the gradient is taken where the parameters are moved by ρ along the normalised gradient. There the
            model is run again, and of the samples that trained before, those that `loss` selects again train.
        looks: whether `look` is to be asked.
        fisher: where it `needs_source`, how much each parameter matters to the source, by name.
        coasts: whether the optimizer steps without a gradient, by its momentum, where no sample trains.
    """

    Options: ClassVar[type | None] = ObjectiveOptions
    default_threshold = 0.0
    sharpness = 0.0
    looks = False
    coasts = False

    def __init__(self, settings: Settings) -> None:
        self.fisher: dict[str, Tensor] = {}
        given = settings.options(ThresholdOptions).threshold
        self.threshold = self.default_threshold if given is None else given

    def loss(self, prediction: Prediction, state: State) -> tuple[Tensor, Tensor | None]:
        """Return the loss of each sample, (B,), and which samples train, (B,) or None for all."""
        raise NotImplementedError

    def next_state(self, prediction: Prediction, state: State, selected: Tensor | None) -> State:
        """Return what to remember after this batch."""
        return state

    def penalty(self, parameters: Mapping[str, Tensor]) -> Tensor | None:
        """Return what is added to the loss for the parameters' sake, with gradient."""
        return None

    def hold(self, start: Mapping[str, Tensor], fisher: Mapping[str, Tensor]) -> None:
        """Take where the parameters start and how much each matters, where it `needs_source`."""

    @staticmethod
    def fixed(layers: Sequence[str]) -> frozenset[str]:
        """Return which of the norm layers, given by name in the order of the model, do not train."""
        return frozenset()

    def look(self, x: Tensor, prediction: Prediction, run: Callable[[Tensor], Tensor], state: State) -> State:
        """Return what `loss` is to find in `state` at this batch only, without gradient; asked where `looks`.

        Args:
            x: the batch.
            prediction: of it.
            run: returns the logits of other images.
            state: what was remembered.
        """
        return {}

    def recovers(self, state: State) -> bool:
        """Whether the parameters go back to the source after this batch; the averages and the optimizer stay."""
        return False


@component("tent", "objective", "minimise the entropy of each prediction (TENT, Wang et al. 2021)", alone=True)
class Tent(Objective):
    """L = H."""

    def loss(self, prediction: Prediction, state: State) -> tuple[Tensor, Tensor | None]:
        """Every sample trains."""
        return prediction.entropy, None


@component("pl", "objective", "train on confident predictions as if they were labels (PL, Lee 2013)", alone=True)
class PseudoLabel(Objective):
    """L = −log p[y*] where p[y*] ≥ τ."""

    Options: ClassVar[type | None] = ThresholdOptions
    default_threshold = 0.4

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if self.threshold > 1:
            raise SettingError(f"Expected `threshold` of PL, a confidence, to be at most 1, but got {self.threshold}.")

    def loss(self, prediction: Prediction, state: State) -> tuple[Tensor, Tensor | None]:
        """Confident samples train."""
        confidence = prediction.p.gather(1, prediction.label.unsqueeze(1)).squeeze(1)
        return pseudo_label_cross_entropy(prediction.log_p, prediction.label), confidence >= self.threshold


@component("ent-w", "objective", "entropy of the sure samples, the surer the heavier (Niu et al. 2022)", alone=True)
class EntropyWeighted(Objective):
    """L = sg(e^{τ−H}) · H where H < τ; τ is the threshold times ln K."""

    Options: ClassVar[type | None] = ThresholdOptions
    defaults_by_preset: ClassVar[Mapping[str, Mapping[str, Any]]] = on_cifar(threshold=0.4)
    default_threshold = 0.5

    def loss(self, prediction: Prediction, state: State) -> tuple[Tensor, Tensor | None]:
        """Samples below the margin train."""
        tau = self.threshold * math.log(prediction.classes)
        h = prediction.entropy.detach()
        return entropy_weights(h, tau) * prediction.entropy, h < tau


@component("eta", "objective", "ent-w on samples unlike those seen (ETA, Niu et al. 2022)", alone=True, has=("div-w",))
class Eta(EntropyWeighted):
    """Ent-W with E0 = 0.4 ln K, and the similarity filter: the same as "ent-w+div-w" with ETA's margin."""

    Options: ClassVar[type | None] = SimilarityOptions
    defaults: ClassVar[Mapping[str, Any]] = {"reduction": "selected"}
    defaults_by_preset: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    default_threshold = 0.4

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.margin = settings.options(SimilarityOptions).similarity

    def loss(self, prediction: Prediction, state: State) -> tuple[Tensor, Tensor | None]:
        """Sure samples that differ from the average of the others train."""
        each, sure = super().loss(prediction, state)
        return each, differs(prediction, sure, state, self.margin)

    def next_state(self, prediction: Prediction, state: State, selected: Tensor | None) -> State:
        """Move the average of the predictions that trained."""
        return next_average(prediction, selected, state)


@dataclass(frozen=True)
class EataOptions(Options):
    """Settings of EATA.

    Attributes:
        fisher_weight: how strongly EATA holds the parameters that matter to the source.
    """

    fisher_weight: float = 2000.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require("fisher_weight", self.fisher_weight, 0 <= self.fisher_weight < math.inf, "at least 0 and finite")


@component(
    "eata",
    "objective",
    "eta, held near the source by Fisher information (EATA, Niu et al. 2022)",
    alone=True,
    has=("div-w",),
)
class Eata(Eta):
    """ETA plus w · Σ F (θ − θ_0)²; F is the Fisher information of the parameters on source images."""

    Options = EataOptions
    defaults_by_preset = on_cifar(fisher_weight=1.0)
    needs_source = True
    synchronises = False

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.weight = settings.options(EataOptions).fisher_weight
        self.start: dict[str, Tensor] = {}

    def hold(self, start: Mapping[str, Tensor], fisher: Mapping[str, Tensor]) -> None:
        """Take down where the parameters start and how much each matters."""
        self.start, self.fisher = dict(start), dict(fisher)

    def penalty(self, parameters: Mapping[str, Tensor]) -> Tensor | None:
        """A parameter that matters to the source may not go far."""
        return self.weight * fisher_penalty(parameters, self.start, self.fisher)
