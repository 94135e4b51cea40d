"""CMF (Lee, Chang 2024, "Continual Momentum Filtering on Parameter Space"): ROID, held near a source that follows.

ROID pulls the weights θ to the fixed source θ_0. CMF pulls them to a refined source h, which a Kalman filter follows
from θ_0, with θ as noisy observations. After each step, with v = 0 at first and the process noise q,

    h ← α h + (1 − α) θ_0          v ← α² v + q          β = (1 − q) / (v + 1 − q), at least 0.89
    h ← β h + (1 − β) θ            v ← β v               θ ← γ θ + (1 − γ) h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from ..registry import component
from ..tensors import at_least_float32
from .roid import Ensembling, LossOptions, average_into

LEAST_KEPT, ALL_KEPT = 0.89, 0.9999
"""β is at least the first; from the second on it is 1."""
PARAMETERS = 38400
"""Of the norm layers of ViT-B, for which q is given; it grows in proportion."""


@dataclass(frozen=True)
class CmfOptions(LossOptions):
    """Settings of CMF.

    Attributes:
        cmf_alpha: α, the share of the refined source that stays when it falls back to the source.
        cmf_gamma: γ, the share of the weights that stays when they are averaged with the refined source.
        cmf_q: q of a model with 38,400 norm parameters.
    """

    cmf_alpha: float = 0.99
    cmf_gamma: float = 0.99
    cmf_q: float = 0.005

    unbounded: ClassVar[tuple[str, ...]] = (*LossOptions.unbounded, "cmf_q")


@component(
    "cmf",
    "standalone",
    "ROID, held near a source that a Kalman filter lets follow (CMF, Lee and Chang 2024)",
    alone=True,
    has=("prior-correction",),
)
class Cmf(Ensembling):
    """ROID's losses, settings and prior correction; another weight ensembling."""

    Options = CmfOptions

    def _ensemble(self) -> None:
        options, memory, source = self.settings.options(CmfOptions), self.objective_memory, self.adapted.source
        parameters = self.adapted.parameters
        q = options.cmf_q * sum(p.numel() for p in parameters.values()) / PARAMETERS
        before = memory.get("variance", memory["average"].new_zeros(()))
        variance = options.cmf_alpha**2 * before + q
        kept = max(LEAST_KEPT, float((1 - q) / (variance + 1 - q)))
        kept = 1.0 if kept >= ALL_KEPT else kept
        hidden = {}
        for name, p in parameters.items():
            now = at_least_float32(p)
            start = source[name].to(now)
            recovered = torch.lerp(start, memory.get(f"hidden.{name}", start).to(now), options.cmf_alpha)
            hidden[name] = torch.lerp(now, recovered, kept)
        average_into(parameters, hidden, options.cmf_gamma)
        self.objective_memory = {
            **memory,
            **{f"hidden.{name}": h for name, h in hidden.items()},
            "variance": kept * variance,
        }
