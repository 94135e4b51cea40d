"""The moments of a batch, and an observation of it."""

import pytest
import torch

from delta_tta.norms.statistics import Observation, batch_moments, merge

EPS = 1e-5


@pytest.mark.parametrize("shape", [(7, 3), (7, 3, 4), (5, 3, 8, 8), (40, 20, 30, 30), (2, 1, 4, 5, 6)])
def test_moments_are_the_biased_ones(shape):
    x = torch.randn(shape, dtype=torch.float64)
    mean, var = batch_moments(x)
    rest = [d for d in range(x.dim()) if d != 1]
    assert torch.allclose(mean, x.mean(rest), atol=1e-14)
    assert torch.allclose(var, x.var(rest, correction=0), atol=1e-14)


@pytest.mark.parametrize("shape", [(6, 3, 4), (6, 3, 9, 9)])
def test_moments_of_constant_and_of_broken_features(shape):
    x = torch.ones(shape)
    x[:, 1] = torch.randn(())
    assert batch_moments(x)[1].tolist() == [0, 0, 0]
    x[2, 1, 0] = float("nan")
    x[3, 2, 0] = float("inf")
    for statistic in batch_moments(x):
        assert statistic.isfinite().tolist() == [True, False, False]


def test_moments_survive_a_large_offset():
    x = torch.randn(64, 2, 8, 8) + 1000
    assert torch.allclose(batch_moments(x)[1], x.double().var((0, 2, 3), correction=0).float(), rtol=1e-3)


def test_moments_without_the_private_operator(monkeypatch):
    x = torch.randn(7, 3, 4, 4)
    fast = batch_moments(x)
    monkeypatch.setattr("delta_tta.norms.statistics._fast_moments", None)
    for a, b in zip(fast, batch_moments(x), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_an_observation_frees_the_features_once_measured():
    x = torch.randn(4, 3)
    seen = Observation(x, EPS)
    assert seen._x is not None
    first = seen.statistics
    assert seen._x is None
    assert seen.statistics is first


def test_merging_many_layers_gives_what_each_gives_alone():
    g = torch.Generator().manual_seed(0)
    shapes = [(4, 3, 9, 9), (4, 5, 8, 8), (2, 3, 9, 9), (4, 3, 2, 2), (4, 2)]  # the last two are measured at once
    features = [torch.randn(shape, generator=g, dtype=torch.float64) * 3 + 2 for shape in shapes]
    together, alone = ([Observation(x, EPS + i % 2) for i, x in enumerate(features)] for _ in range(2))
    for one in together:
        one.measure()
    assert [one.by_sample is not None for one in together] == [True, True, True, False, False]
    merge(together)
    for mine, other in zip(together, alone, strict=True):
        assert mine.by_sample is None
        for a, b in zip(mine.statistics, other.statistics, strict=True):
            assert torch.allclose(a, b, rtol=0, atol=1e-14)


def test_what_was_measured_does_not_follow_the_features():
    x = torch.randn(4, 3, 9, 9)
    seen, expected = Observation(x, EPS), Observation(x.clone(), EPS).statistics
    seen.measure()
    x.zero_()
    assert all(torch.equal(a, b) for a, b in zip(seen.statistics, expected, strict=True))
