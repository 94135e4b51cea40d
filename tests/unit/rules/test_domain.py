"""Whether a new domain is noticed."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from delta_tta.rules.domain import LEAST, Domain
from delta_tta.shares.sharpness import sharpness


def images(seed: int, blur: bool = False, size: int = 16) -> torch.Tensor:
    x = torch.randn(size, 3, 12, 12, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.avg_pool2d(4 * x, 5, 1, 2) if blur else x


@given(st.integers(0, 1000), st.integers(2, 30))
def test_mean_and_variance_are_those_of_the_batches(seed: int, batches: int) -> None:
    found = np.random.default_rng(seed).normal(size=(batches, 3)).astype(np.float32)
    domain = Domain()
    for one in found:
        domain = domain.with_batch(one)
    np.testing.assert_allclose(domain.mean, found.mean(0), atol=1e-4)
    np.testing.assert_allclose(domain.variance, found.var(0, ddof=1), rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(Domain.of(domain.as_array()).mean, domain.mean)


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
