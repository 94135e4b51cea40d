"""Test-time batch renormalisation, as one function with its own gradient (Zhao, Chen, Xia 2023, equation 1).

The paper, with b for the batch, e for the test-time moving average, and sg for stop-gradient:

    v* = (v − μ_b) / σ_b · r + d,    r = sg(σ_b) / σ_e,    d = (sg(μ_b) − μ_e) / σ_e,    out = γ v* + β

Value. With r and d put in, the batch statistics cancel: v* = (v − μ_e) / σ_e. That is batch norm in eval mode
with the moving averages, one fast call.

Gradient. r and d are constants, so v* is r times train-mode batch norm plus d. Hence the gradient to v is that of
train-mode batch norm with the weight γ·r, and with x̂ = (v − μ_b) / σ_b

    ∂γ = Σ g·v* = r · Σ g·x̂ + d · Σ g,    ∂β = Σ g.

The batch statistics are needed by the gradient only, so they are measured in the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .statistics import Observation, batch_moments


def tbr(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    std: Tensor,
    eps: float = 1e-5,
    seen: Observation | None = None,
) -> Tensor:
    """Return γ (x − μ_e) / σ_e + β, shaped as x, with the gradient of test-time batch renormalisation.

    The value is that of batch norm in eval mode. The gradient is that of the paper's equation 1,

        γ ((x − μ_b) / σ_b · r + d) + β          with r = σ_b / σ_e and d = (μ_b − μ_e) / σ_e as constants:

    it passes through μ_b and σ_b, the batch's statistics. None goes to μ_e and σ_e, and there are no second ones.

    Args:
        x: features, (B, C, …).
        weight: γ, (C,); None for 1.
        bias: β, (C,); None for 0.
        mean: μ_e, (C,), in float32 where x is in half precision.
        std: σ_e, (C,), in float32 like `mean`: a standard deviation that includes any eps.
        eps: σ_b is sqrt(biased variance of the batch + eps).
        seen: who measures the batch, where somebody wants to know μ_b and σ_b later; eps is then its own.

    Examples:
        >>> x = torch.tensor([[1.0], [3.0]], requires_grad=True)
        >>> y = tbr(x, None, None, mean=torch.tensor([1.0]), std=torch.tensor([2.0]))
        >>> y.tolist()
        [[0.0], [1.0]]

        A shift of all samples also shifts μ_b, so it has no gradient (eval mode's gradient is 1 / σ_e):

        >>> torch.autograd.grad(y.sum(), x)[0].tolist()
        [[0.0], [0.0]]
    """
    seen = Observation(x, eps, layer="tbr") if seen is None else seen
    if torch.compiler.is_compiling() and seen.ranks is None:
        return renormalise_by_terms(x, weight, bias, mean, std, seen)
    y: Tensor = Renormalise.apply(x, weight, bias, mean, std, seen)  # type: ignore[no-untyped-call]  # torch does not type it
    return y


class Renormalise(torch.autograd.Function):
    """out = γ ((v − μ_b) / σ_b · r + d) + β."""

    @staticmethod
    def forward(
        ctx: Any,
        v: Tensor,
        gamma: Tensor | None,
        beta: Tensor | None,
        mean: Tensor,
        std: Tensor,
        observation: Observation,
    ) -> Tensor:
        """Normalise with the moving averages alone."""
        ctx.save_for_backward(v, gamma, mean, std)
        ctx.observation = observation
        return eval_norm(v, gamma, beta, mean, std)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """Train-mode batch norm's gradient, rescaled by r and d."""
        ctx.observation.check()
        v, gamma, mean, std = ctx.saved_tensors
        if ctx.observation.ranks is not None:
            return shared_backward(g, v, gamma, (mean, std), ctx.observation, ctx.needs_input_grad)
        mean_b, std_b = ctx.observation.statistics
        r = std_b / std
        d = (mean_b - mean) / std
        needs_v, needs_gamma, needs_beta, *_ = ctx.needs_input_grad
        grad_v, grad_xhat, grad_sum = torch.ops.aten.native_batch_norm_backward(
            g,
            v,
            r if gamma is None else r * gamma,
            None,
            None,
            mean_b,
            std_b.reciprocal(),
            True,  # train mode: the gradient passes through the batch statistics
            0.0,  # eps is already inside std_b
            (needs_v, needs_gamma, needs_gamma or needs_beta),
        )
        if needs_gamma:
            grad_gamma = torch.addcmul(r * grad_xhat, d, grad_sum)
        # autograd itself rounds the gradients of a half-precision γ and β to their type
        return grad_v, grad_gamma if needs_gamma else None, grad_sum if needs_beta else None, None, None, None


def shared_backward(
    g: Tensor,
    v: Tensor,
    gamma: Tensor | None,
    used: tuple[Tensor, Tensor],
    observation: Observation,
    needs: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """The same gradient where the batch is spread over ranks; those of γ and β are this rank's part of the sum.

    One exchange carries the moments of the features and the sums of the gradient: Σ g and Σ g·(v − own mean), from
    which follows Σ g·(v − μ_b) of all ranks.
    """
    mean, std = used
    wide, g_wide = v.to(mean.dtype), g.to(mean.dtype)
    own_mean, _ = batch_moments(wide)
    _, sum_gv, sum_g = torch.ops.aten.native_batch_norm_backward(
        g_wide, wide, None, None, None, own_mean, torch.ones_like(own_mean), True, 0.0, (False, True, True)
    )  # Σ g·(v − own mean) and Σ g in one pass
    mean_b, var_b, everybody = observation.shared(wide, sum_g, sum_gv)
    assert observation.values is not None
    std_b = (var_b + observation.eps).sqrt()
    observation.note(mean_b, std_b)
    r, d = std_b / std, (mean_b - mean) / std
    means, sums_g, sums_gv = everybody.unbind(1)
    total_g = sums_g.sum(0)
    total_gx = ((sums_gv + (means - mean_b) * sums_g) / std_b).sum(0)  # Σ g·x̂
    own_gx = (sum_gv + (own_mean - mean_b) * sum_g) / std_b
    needs_v, needs_gamma, needs_beta, *_ = needs
    grad_v = torch.zeros_like(v) if needs_v else None
    if needs_v and not observation.empty:
        # γ r / σ_b · (g − Σ g / n − x̂ Σ g·x̂ / n), which is of the form scale · g + slope · v + shift
        shape = [1, -1, *[1] * (v.dim() - 2)]
        scale = (r if gamma is None else r * gamma) / std_b
        slope = -scale * total_gx / (std_b * observation.values)
        shift = -scale * total_g / observation.values - slope * mean_b
        grad_v = torch.addcmul(shift.view(shape), scale.view(shape), g_wide)
        grad_v = grad_v.addcmul_(slope.view(shape), wide).to(v.dtype)
    grad_gamma = torch.addcmul(r * own_gx, d, sum_g) if needs_gamma else None
    return grad_v, grad_gamma, sum_g if needs_beta else None, None, None, None


def renormalise_by_terms(
    v: Tensor, gamma: Tensor | None, beta: Tensor | None, mean: Tensor, std: Tensor, observation: Observation
) -> Tensor:
    """The same term by term, for torch.compile, which cannot see into `Renormalise` and fuses this instead."""
    x = v.to(mean.dtype)
    var_b, mean_b = torch.var_mean(x, [i for i in range(x.dim()) if i != 1], correction=0, keepdim=True)
    std_b = (var_b + observation.eps).sqrt()
    observation.look(x.detach())
    observation.note(mean_b.detach().flatten(), std_b.detach().flatten())
    shape = mean_b.shape
    r = std_b.detach() / std.view(shape)
    d = (mean_b.detach() - mean.view(shape)) / std.view(shape)
    out = (x - mean_b) / std_b * r + d
    if gamma is not None:
        out = out * gamma.view(shape)
    if beta is not None:
        out = out + beta.view(shape)
    return out.to(v.dtype)


def eval_norm(v: Tensor, gamma: Tensor | None, beta: Tensor | None, mean: Tensor, std: Tensor) -> Tensor:
    """γ (v − μ) / σ + β; gradients treat μ and σ as constants."""
    if gamma is not None and gamma.dtype != mean.dtype:  # a half-precision model: statistics stay float32
        gamma = gamma.to(mean.dtype)
    if beta is not None and beta.dtype != mean.dtype:
        beta = beta.to(mean.dtype)
    return torch.batch_norm(v, gamma, beta, mean, std * std, False, 0.0, 0.0, False)
