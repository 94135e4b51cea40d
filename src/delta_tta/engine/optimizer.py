"""The optimizer of the trained parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..options import OptimizerOptions
from ..settings import Settings


def make_optimizer(
    parameters: Sequence[nn.Parameter], settings: Settings, nesterov: bool = False
) -> torch.optim.Optimizer | None:
    """Return the one that the settings name; None where nothing trains.

    Args:
        parameters: that train.
        settings: with `optimizer` and `lr`.
        nesterov: whether SGD has Nesterov's momentum.
    """
    if not parameters:
        return None
    fused = all(p.device.type in ("cpu", "cuda") for p in parameters)  # one call instead of dozens per step
    chosen = settings.options(OptimizerOptions)
    if chosen.optimizer == "adam":
        return torch.optim.Adam(parameters, chosen.lr, betas=(0.9, 0.999), fused=fused)
    return torch.optim.SGD(parameters, chosen.lr, momentum=0.9, nesterov=nesterov, fused=fused)


def take_step(
    optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]
) -> None:
    """Take a step along the gradients; those that a user left in the parameters stay there."""
    users = [p.grad for p in parameters]
    for p, gradient in zip(parameters, gradients, strict=True):
        p.grad = gradient
    try:
        optimizer.step()
    finally:
        for p, own in zip(parameters, users, strict=True):
            p.grad = own


def climbed(
    parameters: Mapping[str, nn.Parameter], gradients: Sequence[Tensor | None], far: float
) -> dict[str, Tensor] | None:
    """Return the parameters where the loss is higher: moved by a given length along the gradient of all of them.

    Returns None where the gradient is not finite. (Foret et al. 2021, equation 2.)
    """
    norm = torch.cat([g.flatten() for g in gradients if g is not None]).norm()
    if not bool(norm.isfinite()):
        return None
    scale = far / (norm + 1e-12)
    return {
        name: p.detach() if g is None else torch.add(p.detach(), g * scale.to(g))
        for (name, p), g in zip(parameters.items(), gradients, strict=True)
    }
