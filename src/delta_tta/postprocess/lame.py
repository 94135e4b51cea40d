"""LAME (Boudiaf et al. 2022): neighbours in feature space should get the same label; the model is not changed.

Minimises, over the assignments Y of a batch, E(Y) = Σ_i [ u_i·Y_i − Σ_j W_ij Y_j·Y_i + Y_i·log Y_i ] with u = −log p,
by the fixed-point iteration Y ← softmax(−u + W·Y).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..options import Options, require
from ..registry import component
from ..settings import Settings
from ..tensors import at_least_float32
from .features import FeaturePostprocess

TINY = 1e-10
"""Added to p before the logarithm."""
ROUNDS = 100
STOP = 1e-8
"""The iteration ends when the energy changes by no more than this share of itself."""


@dataclass(frozen=True)
class LameOptions(Options):
    """Settings of LAME.

    Attributes:
        affinity: how LAME compares features: "knn", "rbf" or "linear".
        neighbours: k of LAME's kNN and rbf.
    """

    affinity: Literal["knn", "rbf", "linear"] = "knn"
    neighbours: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        require("neighbours", self.neighbours, self.neighbours >= 1, "at least 1")


@component(
    "lame", "postprocess", "let neighbours in feature space agree (LAME, Boudiaf et al. 2022)", alone=True, part=True
)
class Lame(FeaturePostprocess):
    """Corrects each batch by itself; there is no state."""

    Options = LameOptions
    title = "LAME"
    least_classes = 2

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        super().__init__(model, settings)
        self.options = settings.options(LameOptions)

    def __call__(self, x: Tensor, logits: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Return −u + W·Y at the fixed point: its softmax is Y."""
        with torch.autocast(logits.device.type, enabled=False):
            features = F.normalize(self._tap.take(len(logits)), dim=1)
            weights = affinity(features, self.options.affinity, self.options.neighbours)
            p = at_least_float32(logits).softmax(1)
            return laplacian(-(p + TINY).log(), weights.to(p)).to(logits.dtype)


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
