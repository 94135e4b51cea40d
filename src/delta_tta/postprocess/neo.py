"""NEO (Murphy, Danilowski, Chatterjee, Ghosh 2026): a shift moves all features alike, so move their mean to zero.

The answer to a batch with features h, the input of the classifier θ, is θ(h − μ). μ is the mean of the features of all
samples so far, those of the batch among them. With neural collapse the features of the source have mean zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import SettingError
from ..options import Options
from ..registry import State, component
from ..settings import Settings
from ..tensors import at_least_float32
from .features import FeaturePostprocess

ROUNDING = 1e-5
"""Logits that differ by a smaller share of the largest one are those of the classifier."""


@dataclass(frozen=True)
class NeoOptions(Options):
    """Settings of NEO.

    Attributes:
        neo_alpha: α of NEO-Continual, the share of the batch in the mean; None: all samples so far count alike.
    """

    neo_alpha: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neo_alpha is not None and not 0 < self.neo_alpha <= 1:
            raise SettingError(f"Expected `neo_alpha` to be greater than 0 and at most 1, but got {self.neo_alpha}.")


@component(
    "neo", "postprocess", "move the mean of the features to zero (NEO, Murphy et al. 2026)", alone=True, part=True
)
class Neo(FeaturePostprocess):
    """Remembers the mean of the features, (D,), and of how many samples it is."""

    Options = NeoOptions
    title = "NEO"
    learns = True

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        super().__init__(model, settings)
        self._alpha = settings.options(NeoOptions).neo_alpha

    def __call__(self, x: Tensor, logits: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the logits of the centred features, (B, K)."""
        with torch.autocast(logits.device.type, enabled=False):
            features = self._tap.take(len(logits))
            fine = features[features.isfinite().all(1)]
            state = self._next(fine) if len(fine) else self.memory
            if not state:
                return logits
            self.pending = state
            change = self._change(features, logits, state["mean"])
        if change is not None:
            return (at_least_float32(logits) + change).to(logits.dtype)
        return self._again(x, state["mean"], run)

    def _next(self, features: Tensor) -> State:
        """Return the mean after a batch: as in the authors' program, samples count alike, not batches."""
        own, count = features.mean(0), features.new_tensor(float(len(features)))
        if self._alpha is not None:
            before = self.memory.get("mean", torch.zeros_like(own))
            return {"mean": before.lerp(own, self._alpha)}
        if not self.memory:
            return {"mean": own, "seen": count}
        seen = self.memory["seen"] + count
        return {"mean": self.memory["mean"].lerp(own, count / seen), "seen": seen}

    def _change(self, features: Tensor, logits: Tensor, mean: Tensor) -> Tensor | None:
        """Return −W·μ, (K,), if the logits are those of a linear classifier; else None."""
        layer = self._tap.layer
        if not isinstance(layer, nn.Linear) or features.shape[1] != layer.in_features:
            return None
        weight = at_least_float32(layer.weight.detach())
        own = F.linear(features, weight, None if layer.bias is None else at_least_float32(layer.bias.detach()))
        if own.shape != logits.shape:
            return None
        tolerance = max(ROUNDING, 2 * torch.finfo(logits.dtype).eps) * float(own.nan_to_num().abs().max())
        differ = ((own - logits).abs() > tolerance) & logits.isfinite()  # a class may be masked by −∞
        return None if bool(differ.any()) else -F.linear(mean, weight)

    def _again(self, x: Tensor, mean: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Run the model with centred features: what it does to the classifier's output is not known."""

        def centre(layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            return (inputs[0] - mean.to(inputs[0].dtype).view(inputs[0].shape[1:]), *inputs[1:])

        assert self._tap.layer is not None
        hook = self._tap.layer.register_forward_pre_hook(centre)
        try:
            return run(x)
        finally:
            hook.remove()
