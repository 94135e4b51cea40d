"""LAME (Boudiaf et al. 2022): neighbours in feature space should get the same label; the model is not changed.

Minimises, over the assignments Y of a batch, E(Y) = Σ_i [ u_i·Y_i − Σ_j W_ij Y_j·Y_i + Y_i·log Y_i ] with u = −log p,
by the fixed-point iteration Y ← softmax(−u + W·Y).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError, ModelError, nearest
from ..registry import component
from ..settings import Settings
from ..tensors import at_least_float32, changed_since, changes
from .base import Postprocess

TINY = 1e-10
"""Added to p before the logarithm."""
ROUNDS = 100
STOP = 1e-8
"""The iteration ends when the energy changes by no more than this share of itself."""


@component(
    "lame", "postprocess", "let neighbours in feature space agree (LAME, Boudiaf et al. 2022)", alone=True, part=True
)
class Lame(Postprocess):
    """Corrects each batch by itself; there is no state."""

    uses = ("affinity", "neighbours", "features")

    compares = True
    reads_features = True
    least_classes = 2

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        super().__init__(model, settings)
        self._tap = FeatureTap(model, settings.features)

    def __call__(self, x: Tensor, logits: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Return −u + W·Y at the fixed point: its softmax is Y."""
        with torch.autocast(logits.device.type, enabled=False):
            features = F.normalize(self._tap.take(len(logits)), dim=1)
            weights = affinity(features, self.settings.affinity, self.settings.neighbours)
            p = at_least_float32(logits).softmax(1)
            return laplacian(-(p + TINY).log(), weights.to(p)).to(logits.dtype)

    def close(self) -> None:
        """Take the hooks out."""
        self._tap.close()


def affinity(features: Tensor, kind: str, neighbours: int) -> Tensor:
    """Return W, (B, B): how much LAME wants two samples to get the same label (Boudiaf et al. 2022).

    Args:
        features: of unit length, (B, D).
        kind: "knn": 1 for the nearest others, directed. "rbf": exp(−d²/2σ²), σ the batch mean of the k-th smallest
            distance (a sample's own, 0, is the first). "linear": the cosine.
        neighbours: k.

    Examples:
        >>> features = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> affinity(features, "knn", neighbours=1)
        tensor([[0., 1., 0.],
                [1., 0., 0.],
                [0., 1., 0.]])
    """
    if kind == "linear":
        return features @ features.T
    count = len(features)
    if count == 1:
        return features.new_zeros(1, 1)
    distances = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
    distances.fill_diagonal_(torch.inf if kind == "knn" else 0)
    if kind == "knn":
        nearest_ones = distances.topk(min(neighbours, count - 1), largest=False).indices
        return torch.zeros_like(distances).scatter_(1, nearest_ones, 1)
    sigma = distances.kthvalue(min(neighbours, count), dim=1).values.mean()
    return (-(distances**2) / (2 * sigma**2).clamp(min=torch.finfo(distances.dtype).tiny)).exp()


def laplacian(unary: Tensor, weights: Tensor) -> Tensor:
    """Return the logits of LAME's answer, (B, K): −u + W·Y at the fixed point of Y ← softmax(−u + W·Y).

    Args:
        unary: u = −log p, (B, K).
        weights: W, (B, B), such as of `affinity`.

    Examples:
        An unsure sample takes the label of its neighbours:

        >>> p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]])
        >>> all_alike = torch.ones(3, 3)
        >>> laplacian(-p.log(), all_alike).softmax(1)
        tensor([[0.9933, 0.0067],
                [0.9933, 0.0067],
                [0.9170, 0.0830]])
    """
    scores = -unary
    y = scores.softmax(1)  # Y_0 = p
    before = float(energy(unary, weights, y))
    for _ in range(ROUNDS):
        scores = weights @ y - unary
        y = scores.softmax(1)
        now = float(energy(unary, weights, y))
        if abs(now - before) <= STOP * abs(before):
            break
        before = now
    return scores


def energy(unary: Tensor, weights: Tensor, y: Tensor) -> Tensor:
    """E(Y)."""
    return (unary * y - (weights @ y) * y + torch.xlogy(y, y)).sum()


class FeatureTap:
    """Takes down the input of the classifier as the model runs: the named layer, or the last linear layer that ran."""

    def __init__(self, model: nn.Module, name: str | None, user: str = "LAME") -> None:
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
