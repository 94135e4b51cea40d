"""Norm layers inside of torch.compile: the statistics are an operator the compiler cannot see into, the rest it fuses.

A layer decides in Python what it normalises with: by its phase, its slot, what it has seen. If that were traced, the
graph would be compiled anew for each of them. So the graph asks the operator for μ and σ, and for μ_b and σ_b of the
batch, which the layer measures and remembers as it does without a compiler. Value and gradient (tbr.py) are plain
terms of these, which the compiler fuses with the activation behind them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from .base import AdaptiveNorm

ROWS = 5
"""μ, σ, μ_b, σ_b, and whether the gradient passes through μ_b and σ_b, (ROWS, C)."""

_layers: WeakValueDictionary[int, AdaptiveNorm] = WeakValueDictionary()
_handles = itertools.count(1)
_library: list[torch.library.Library] = []  # an operator lives as long as what defined it


def make_fused(layers: Iterable[AdaptiveNorm]) -> None:
    """Let these layers, and no copies of them, run fused in the graphs compiled from now on."""
    if not _library:
        library = torch.library.Library("delta_tta", "FRAGMENT")
        library.define("statistics(Tensor x, int layer, bool learns) -> Tensor")
        library.impl("statistics", _statistics, "CompositeExplicitAutograd")
        library._register_fake("statistics", _shape_of_statistics)
        _library.append(library)
    for layer in layers:
        if vars(type(layer)).get("fuses"):  # a subclass may normalise in another way
            layer.handle = next(_handles)
            _layers[layer.handle] = layer


def _statistics(x: Tensor, layer: int, learns: bool) -> Tensor:
    norm = _layers[layer]
    with torch.set_grad_enabled(learns):
        used = norm.used(x)
    with torch.no_grad():
        if used is None:
            used = norm.of_batch(x)
        mean, std, seen = used
        if not learns or seen is None:
            return torch.stack([mean, std, mean, std, torch.zeros_like(mean)])
        return torch.stack([mean, std, *(t.to(mean) for t in seen.statistics), torch.ones_like(mean)])


def _shape_of_statistics(x: Tensor, layer: int, learns: bool) -> Tensor:
    return x.new_empty(ROWS, x.shape[1], dtype=torch.promote_types(x.dtype, torch.float32))


def fused(x: Tensor, gamma: Tensor | None, beta: Tensor | None, layer: int) -> Tensor:
    """Normalise x as a layer does now; for code that is being compiled."""
    learns = torch.is_grad_enabled()
    found = torch.ops.delta_tta.statistics(x.detach(), layer, learns)
    gamma = torch.ones_like(found[0]) if gamma is None else gamma.to(found.dtype)
    beta = torch.zeros_like(found[0]) if beta is None else beta.to(found.dtype)
    if not learns:
        return _value(x, gamma, beta, found)
    y: Tensor = _Normalise.apply(x, gamma, beta, found)  # type: ignore[no-untyped-call]  # torch does not type it
    return y


def _value(x: Tensor, gamma: Tensor, beta: Tensor, found: Tensor) -> Tensor:
    shape = [1, -1, *[1] * (x.dim() - 2)]
    scale = gamma / found[1]
    y = (x.to(found.dtype) - found[0].view(shape)) * scale.view(shape) + beta.view(shape)
    return y.to(x.dtype)


class _Normalise(torch.autograd.Function):
    """γ (v − μ) / σ + β with TBR's gradient, or with that for constant μ and σ."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gamma: Tensor, beta: Tensor, found: Tensor) -> Tensor:
        """Normalise."""
        ctx.save_for_backward(x, gamma, found)
        return _value(x, gamma, beta, found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """As in tbr.py, in terms that the compiler can fuse."""
        x, gamma, found = ctx.saved_tensors
        mean, std, mean_b, std_b, through = found.unbind(0)
        shape, over = [1, -1, *[1] * (x.dim() - 2)], [i for i in range(x.dim()) if i != 1]
        wide, apart = g.to(found.dtype), x.to(found.dtype) - mean_b.view(shape)
        sum_g = wide.sum(over)
        sum_gx = (wide * apart).sum(over) / std_b  # Σ g·x̂
        values = x.numel() // x.shape[1]
        scale = gamma / std
        slope = -scale * through * sum_gx / (std_b * values)
        shift = -scale * through * sum_g / values
        grad_x = scale.view(shape) * wide + slope.view(shape) * apart + shift.view(shape)
        grad_gamma = sum_gx * std_b / std + sum_g * (mean_b - mean) / std
        return grad_x.to(x.dtype), grad_gamma, sum_g, None
