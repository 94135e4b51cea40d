"""Whether a new domain is noticed, and what happens then."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import delta_tta
from delta_tta.rules.domain import LEAST, Domain
from delta_tta.shares.sharpness import sharpness
from nets import conv_net


def images(seed: int, blur: bool = False, size: int = 16) -> torch.Tensor:
    x = torch.randn(size, 3, 12, 12, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.avg_pool2d(4 * x, 5, 1, 2) if blur else x


def test_sharpness_is_the_log_of_the_standard_deviation_of_second_differences() -> None:
    x = images(0)
    bends = x[..., 2:] - 2 * x[..., 1:-1] + x[..., :-2]
    expected = [bends[:, c].std(correction=0).log().item() for c in range(3)]
    assert sharpness(x) == pytest.approx(expected, abs=1e-5)
    assert sharpness((20 * x).round().to(torch.int8)) == pytest.approx(np.array(expected) + np.log(20), abs=0.02)


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 9), (4, 3, 8, 2)])
def test_input_without_width_has_none(shape: tuple[int, ...]) -> None:
    assert sharpness(torch.rand(shape)) is None


@given(st.integers(0, 1000), st.integers(2, 30))
def test_mean_and_variance_are_those_of_the_batches(seed: int, batches: int) -> None:
    found = np.random.default_rng(seed).normal(size=(batches, 3)).astype(np.float32)
    domain = Domain()
    for one in found:
        domain = domain.with_batch(one)
    np.testing.assert_allclose(domain.mean, found.mean(0), atol=1e-4)
    np.testing.assert_allclose(domain.variance, found.var(0, ddof=1), rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(Domain.of(domain.as_array()).mean, domain.mean)


def test_values_too_large_to_be_squared_have_none_and_warn_of_nothing() -> None:
    assert sharpness(torch.full((1, 3, 8, 8), torch.finfo(torch.float32).max)) is None
    assert sharpness(1e30 * torch.randn(2, 3, 8, 8)) is None


def test_blur_is_noticed_and_more_of_the_same_is_not() -> None:
    domain = Domain()
    for seed in range(LEAST):
        blurred = sharpness(images(100, blur=True))
        assert blurred is not None
        assert not domain.left_by(blurred)
        found = sharpness(images(seed))
        assert found is not None
        domain = domain.with_batch(found)
    assert domain.left_by(blurred)
    same = sharpness(images(99))
    assert same is not None
    assert not domain.left_by(same)


def test_a_new_domain_begins_with_the_statistics_of_the_source_and_a_refused_batch_begins_none() -> None:
    guard = delta_tta.Guard(alike=0)  # noise is blank to a network that was never trained
    model = delta_tta.adapt(conv_net(), guard=guard)
    for seed in range(LEAST + 2):
        model(images(seed))
    before = model.state_dict()
    spoilt = images(0)
    spoilt[:] = 0.0
    spoilt[0, 0, 0, 0] = torch.nan
    model(spoilt)  # the guard refuses it
    after = model.state_dict()["shares"]
    assert after["counts"] == before["shares"]["counts"]
    assert torch.equal(after["domain"], before["shares"]["domain"])

    model(images(7, blur=True))
    shares = model.state_dict()["shares"]
    assert shares["counts"][1] == 1  # one batch of the new domain
    fresh = delta_tta.adapt(conv_net(), guard=guard)
    fresh(images(7, blur=True))
    for name, averages in fresh.state_dict()["statistics"].items():
        for key, value in averages.items():
            torch.testing.assert_close(model.state_dict()["statistics"][name][key], value)


def test_a_still_scene_in_which_something_moves_is_no_new_domain() -> None:
    x, domain = images(0), Domain()
    still = sharpness(x)
    assert still is not None
    for _ in range(20):
        domain = domain.with_batch(still)
    x[:, :, 3:6, 3:6] = 0
    moved = sharpness(x)
    assert moved is not None
    assert 0 < domain.distance(moved) < 1
    assert not domain.left_by(moved)
