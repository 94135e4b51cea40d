"""TBR's function: gradcheck, closed forms, and equality with the formula over shapes, types and layouts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from delta_tta.norms.statistics import Observation
from delta_tta.norms.tbr import Renormalise, eval_norm, renormalise_by_terms
from plain import PlainNorm

EPS = 1e-5


def averages(channels, dtype=torch.float64):
    return torch.randn(channels, dtype=dtype), torch.rand(channels, dtype=dtype) + 0.5


def surrogate(v, gamma, beta, mean, std, mean_b, std_b):
    """Equation 1 with r and d as the constants they are, so that finite differences see the right function."""
    r, d = std_b / std, (mean_b - mean) / std
    x = (v - v.mean((0, 2, 3), keepdim=True)) / (v.var((0, 2, 3), correction=0, keepdim=True) + EPS).sqrt()
    view = (1, -1, 1, 1)
    return (x * r.view(view) + d.view(view)) * gamma.view(view) + beta.view(view)


def test_gradient_equals_finite_differences_of_equation_1():
    v = torch.randn(4, 3, 2, 3, dtype=torch.float64, requires_grad=True)
    gamma, beta = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    mean, std = averages(3)
    mean_b, std_b = Observation(v, EPS).statistics
    g = torch.randn_like(v)

    out = Renormalise.apply(v, gamma, beta, mean, std, Observation(v, EPS))
    ours = torch.autograd.grad(out, (v, gamma, beta), g)

    step = 1e-6
    for tensor, gradient in zip((v, gamma, beta), ours, strict=True):
        numeric = torch.zeros_like(tensor)
        flat = tensor.detach().view(-1)
        for i in range(flat.numel()):
            values = []
            for sign in (1, -1):
                flat[i] += sign * step
                with torch.no_grad():
                    values.append((surrogate(v, gamma, beta, mean, std, mean_b, std_b) * g).sum())
                flat[i] -= sign * step
            numeric.view(-1)[i] = (values[0] - values[1]) / (2 * step)
        assert torch.allclose(gradient, numeric, atol=1e-7)


def test_gradcheck_where_batch_and_averages_agree():
    """With the averages equal to the batch's, TBR is train-mode batch norm, which gradcheck can differentiate."""

    def tbr(v, gamma, beta):
        mean, std = Observation(v, EPS).statistics
        return Renormalise.apply(v, gamma, beta, mean, std, Observation(v, EPS))

    v = torch.randn(3, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    gamma, beta = (torch.randn(2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(tbr, (v, gamma, beta))


def test_gradcheck_of_gamma_and_beta():
    v, (mean, std) = torch.randn(3, 2, 2, 2, dtype=torch.float64), averages(2)
    gamma, beta = (torch.randn(2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(
        lambda g, b: Renormalise.apply(v, g, b, mean, std, Observation(v, EPS)), (gamma, beta)
    )


def test_first_batch_is_train_mode_batch_norm():
    layer = nn.BatchNorm2d(4).double()
    nn.init.uniform_(layer.weight)
    v = torch.randn(6, 4, 3, 3, dtype=torch.float64, requires_grad=True)
    seen = Observation(v, layer.eps)
    ours = Renormalise.apply(v, layer.weight, layer.bias, *seen.statistics, seen)
    theirs = layer(v)
    assert torch.allclose(ours, theirs, atol=1e-13)
    g, wanted = torch.randn_like(v), (v, layer.weight, layer.bias)
    for a, b in zip(torch.autograd.grad(ours, wanted, g), torch.autograd.grad(theirs, wanted, g), strict=True):
        assert torch.allclose(a, b, atol=1e-12)


def test_gradient_to_the_input_is_train_mode_batch_norms_times_r():
    layer = nn.BatchNorm1d(3).double()
    v = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    mean, std = averages(3)
    seen, g = Observation(v, layer.eps), torch.randn(8, 3, dtype=torch.float64)
    ours = torch.autograd.grad(Renormalise.apply(v, layer.weight, layer.bias, mean, std, seen), v, g)[0]
    theirs = torch.autograd.grad(layer(v), v, g)[0]
    assert torch.allclose(ours, theirs * (seen.statistics[1] / std), atol=1e-13)


def test_value_uses_the_averages_alone():
    v, (mean, std) = torch.randn(5, 3, dtype=torch.float64), averages(3)
    out = Renormalise.apply(v, None, None, mean, std, Observation(v, EPS))
    assert torch.allclose(out, (v - mean) / std, atol=1e-14)


@settings(max_examples=60)
@given(data=st.data())
def test_equals_the_formula_over_many_steps(data):
    """Forward, all gradients and the averages, for any shape, type, α, layout and kind of layer."""
    space = data.draw(st.lists(st.integers(1, 5), max_size=3))
    shape = (data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5)), *space)
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    alpha = data.draw(st.floats(0, 1))
    affine = data.draw(st.booleans())
    layout = data.draw(st.sampled_from(["contiguous", "channels last", "strided"]))
    form = data.draw(st.sampled_from([Renormalise.apply, renormalise_by_terms]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**31)))

    kind = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[len(space)]
    layer = kind(shape[1], affine=affine, eps=1e-3).to(dtype)
    if affine:
        with torch.no_grad():
            layer.weight.uniform_(0.5, 1.5, generator=generator)
            layer.bias.uniform_(-1, 1, generator=generator)
    plain = PlainNorm(layer, "tbr", alpha, "inherit")
    mean, std = plain.mean.clone(), plain.std.clone()
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5

    for _ in range(4):
        v = torch.randn(shape, generator=generator, dtype=dtype) * 1.5 + 0.3
        if layout == "channels last" and v.dim() in (4, 5):
            v = v.to(memory_format=torch.channels_last if v.dim() == 4 else torch.channels_last_3d)
        elif layout == "strided":
            v = torch.stack([v, v], dim=-1)[..., 0]
        v.requires_grad_(True)
        seen = Observation(v, layer.eps)
        ours = form(v, layer.weight, layer.bias, mean, std, seen)
        theirs = plain(v)
        assert torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance)
        wanted = [v, *layer.parameters()]
        g = torch.randn(shape, generator=generator, dtype=dtype)
        for a, b in zip(torch.autograd.grad(ours, wanted, g), torch.autograd.grad(theirs, wanted, g), strict=True):
            scale = max(1.0, float(b.abs().max()))
            assert torch.allclose(a, b, rtol=tolerance, atol=tolerance * 10 * scale)
        mean, std = (torch.lerp(new, old, alpha) for new, old in zip(seen.statistics, (mean, std), strict=True))
        assert torch.allclose(mean, plain.mean, rtol=tolerance, atol=tolerance)
        assert torch.allclose(std, plain.std, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("half_affine", [False, True])
@pytest.mark.parametrize("form", [Renormalise.apply, renormalise_by_terms])
def test_half_precision_features_keep_float32_statistics(dtype, half_affine, form):
    v = torch.randn(16, 4, 5, 5, dtype=dtype, requires_grad=True)
    gamma, beta = (torch.rand(4, dtype=dtype if half_affine else torch.float32, requires_grad=True) for _ in range(2))
    mean, std = averages(4, torch.float32)
    seen = Observation(v, EPS)
    out = form(v, gamma, beta, mean, std, seen)
    assert out.dtype == dtype
    assert all(s.dtype == torch.float32 for s in seen.statistics)
    wide = v.detach().float().requires_grad_()
    expected = Renormalise.apply(wide, gamma.float(), beta.float(), mean, std, Observation(wide, EPS))
    assert torch.allclose(out.float(), expected, rtol=1e-2, atol=2e-2)
    g = torch.randn_like(v)
    gradients = torch.autograd.grad(out, (v, gamma, beta), g)
    assert [x.dtype for x in gradients] == [dtype, gamma.dtype, beta.dtype]
    reference = torch.autograd.grad(expected, wide, g.float())[0]
    assert torch.allclose(gradients[0].float(), reference, rtol=5e-2, atol=2e-2)


def test_tema_gradient_takes_the_averages_for_constants():
    v = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    gamma, (mean, std) = torch.rand(3, dtype=torch.float64), averages(3)
    g = torch.randn(5, 3, dtype=torch.float64)
    gradient = torch.autograd.grad(eval_norm(v, gamma, None, mean, std), v, g)[0]
    assert torch.allclose(gradient, g * gamma / std, atol=1e-14)
