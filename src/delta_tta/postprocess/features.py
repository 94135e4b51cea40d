"""Post-processing that reads features, the input of the classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from ..errors import InputError, ModelError, nearest
from ..options import Options
from ..settings import Settings
from ..tensors import at_least_float32, changed_since, changes
from .base import Postprocess


@dataclass(frozen=True)
class FeatureOptions(Options):
    """Settings of what reads features.

    Attributes:
        features: name of the layer whose input are the features; None takes the last linear layer.
    """

    features: str | None = None


class FeaturePostprocess(Postprocess):
    """Base of the components that compare the features of the samples of a batch.

    Attributes:
        title: the method, for messages.
    """

    Options: ClassVar[type | None] = FeatureOptions
    title: ClassVar[str]

    compares = True
    reads_features = True

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        super().__init__(model, settings)
        self._tap = FeatureTap(model, settings.options(FeatureOptions).features, self.title)

    def close(self) -> None:
        """Take the hooks out."""
        self._tap.close()


class FeatureTap:
    """Takes down the input of the classifier as the model runs: the named layer, or the last linear layer that ran."""

    def __init__(self, model: nn.Module, name: str | None, user: str) -> None:
        self._user = user
        layers = dict(model.named_modules())
        if name is not None and name not in layers:
            raise ModelError(f"The model has no layer {name!r} for `features`.{nearest(name, filter(None, layers))}")
        taps = [layers[name]] if name is not None else [m for m in layers.values() if isinstance(m, nn.Linear)]
        if not taps:
            raise ModelError(
                f"{user} compares the inputs of the classifier, and the model has no linear layer. Name the layer "
                "whose input to take: features='...'."
            )
        self._seen: Tensor | None = None
        self.layer: nn.Module | None = None  # whose input was taken down last
        self._changes: int | None = None
        self._hooks = [layer.register_forward_pre_hook(self._note) for layer in taps]

    def _note(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._seen, self.layer = inputs[0].detach(), layer
        self._changes = changes(inputs[0])

    def take(self, count: int) -> Tensor:
        """Return the features of the last batch, (B, D), in float32 or better."""
        seen, self._seen = self._seen, None
        if seen is None or len(seen) != count or seen.dim() < 2:
            came = "none came" if seen is None else f"got {tuple(seen.shape)}"
            raise InputError(
                f"Expected features for {count} samples at the classifier's input, but {came}. Name the layer whose "
                "input to take: features='...'."
            )
        if changed_since(seen, self._changes):
            raise InputError(
                "The model changes the input of its classifier in place after the classifier has run, and "
                f"{self._user} compares that input. Let it compute a new tensor, such as h * 3 instead of h.mul_(3)."
            )
        return at_least_float32(seen).flatten(1)

    def close(self) -> None:
        """Take the hooks out."""
        for hook in self._hooks:
            hook.remove()
