"""Moments of samples and normalising with them, against torch and finite differences."""

import pytest
import torch

from delta_tta.norms.samples import normalised, sample_statistics


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(3, 2, 5), (3, 2, 4, 5), (2, 3, 2, 3, 2)])
def test_the_moments_are_those_over_space_and_so_is_their_gradient(shape):
    x = draw(*shape).requires_grad_()
    mean, var = sample_statistics(x)
    dims = list(range(2, len(shape)))
    assert torch.allclose(mean, x.mean(dims))
    assert torch.allclose(var, x.var(dims, correction=0))
    assert torch.autograd.gradcheck(sample_statistics, x)
    with torch.no_grad():
        assert all(torch.allclose(a, b) for a, b in zip(sample_statistics(x), (mean, var), strict=True))


def test_features_without_space_are_their_own_means():
    x = draw(4, 3).to(torch.bfloat16)
    mean, var = sample_statistics(x)
    assert mean.dtype == torch.float32
    assert torch.equal(mean, x.float())
    assert not var.any()


@pytest.mark.parametrize("per_sample", [False, True])
def test_normalising_is_that_of_batch_norm_for_all_or_for_each_sample(per_sample):
    x, weight, bias = draw(4, 3, 2, 2), draw(3, seed=1), draw(3, seed=2)
    mean, var = draw(4, 3, seed=3), draw(4, 3, seed=4) ** 2
    if not per_sample:
        mean, var = mean[0], var[0]
    wide = mean.reshape(-1, 3, 1, 1), var.reshape(-1, 3, 1, 1)
    expected = weight.view(3, 1, 1) * (x - wide[0]) / (wide[1] + 1e-5).sqrt() + bias.view(3, 1, 1)
    assert torch.allclose(normalised(x, weight, bias, mean, var, 1e-5), expected)
    plain = (x - wide[0]) / (wide[1] + 1e-5).sqrt()
    assert torch.allclose(normalised(x, None, None, mean, var, 1e-5), plain)
    inputs = [t.clone().requires_grad_() for t in (x, weight, bias, mean, var)]
    assert torch.autograd.gradcheck(lambda *given: normalised(*given, 1e-5), inputs)
