"""SAR (Niu et al. 2023): entropy of the reliable samples where the loss is sharpest, and recovery from a collapse."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import SettingError
from ..norms.last import last_blocks
from ..objectives import Objective
from ..options import ThresholdOptions
from ..prediction import Prediction
from ..registry import State, component
from ..settings import Settings

KEPT = 0.9
"""Share of the old average loss that stays."""


@component(
    "sar", "objective", "entropy of reliable samples, sharpness-aware, with recovery (SAR, Niu et al. 2023)", alone=True
)
class Sar(Objective):
    """min_θ max_{‖ε‖ ≤ ρ} H(θ + ε) over samples with H < E0; θ falls back to the source when the mean loss is low."""

    @dataclass(frozen=True)
    class Options(ThresholdOptions):
        """Settings of SAR.

        Attributes:
            sar_rho: ρ, how far the parameters climb before the gradient is taken.
            sar_recovery: e_0; the parameters go back to the source when the moving average of the loss is below; 0:
                never.
        """

        sar_rho: float = 0.05
        sar_recovery: float = 0.2

        def __post_init__(self) -> None:
            super().__post_init__()
            for name, fine, words in (
                ("sar_rho", 0 < self.sar_rho < math.inf, "greater than 0 and finite"),
                ("sar_recovery", 0 <= self.sar_recovery < math.inf, "at least 0 and finite"),
            ):
                if not fine:
                    raise SettingError(f"Expected setting `{name}` to be {words}, but got {getattr(self, name)!r}.")

    defaults: ClassVar[Mapping[str, Any]] = {"reduction": "selected"}
    default_threshold = 0.4
    coasts = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        options = settings.options(self.Options)
        self.sharpness = options.sar_rho
        self.recovery = options.sar_recovery

    @staticmethod
    def fixed(layers: Sequence[str]) -> frozenset[str]:
        """The last blocks and the final norm do not train."""
        return last_blocks(layers)

    def loss(self, prediction: Prediction, state: State) -> tuple[Tensor, Tensor | None]:
        """Samples below the margin train."""
        margin = self.threshold * math.log(prediction.classes)
        return prediction.entropy, prediction.entropy.detach() < margin

    def next_state(self, prediction: Prediction, state: State, selected: Tensor | None) -> State:
        """Move the average of the loss, which is that of θ + ε; as it was where no sample trained."""
        entropy = prediction.entropy.detach()
        trained = entropy if selected is None else entropy[selected]
        if not len(trained):
            return state
        mean = trained.mean()
        return {"loss": torch.lerp(mean, state["loss"].to(mean), KEPT) if "loss" in state else mean}

    def recovers(self, state: State) -> bool:
        """Whether the predictions have become so sure that the model has collapsed."""
        return "loss" in state and float(state["loss"]) < self.recovery
