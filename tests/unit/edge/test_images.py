"""What is done to images in numpy is what torch does to them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from delta_tta.edge.images import differences, log_softmax, mirror_images, not_finite
from delta_tta.postprocess.mirror import mirror_images as mirrored_by_torch
from delta_tta.shares.sharpness import differences as differences_by_torch


@pytest.mark.parametrize("shape", [(4, 3, 9, 7), (2, 1, 33, 3), (2, 3, 4, 5, 6), (4, 3, 8, 2), (4, 3, 9), (4, 3)])
def test_differences_and_mirror_images(shape):
    x = torch.randn(shape)
    for ours, theirs in ((differences, differences_by_torch), (mirror_images, mirrored_by_torch)):
        found, expected = ours(x.numpy()), theirs(x)
        if expected is None:
            assert found is None
        else:
            np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-5, atol=1e-6)


def test_values_whose_squares_are_infinite_warn_of_nothing():
    assert not np.isfinite(
        differences(np.full((1, 1, 3, 9), 1e30, np.float32) * np.arange(9, dtype=np.float32) ** 2)
    ).all()


def test_samples_that_are_not_finite_are_named():
    x = np.ones((5, 2, 3, 3), np.float32)
    assert not_finite(x) == []
    x[1, 0, 2, 2], x[3, 1, 0, 0] = np.nan, -np.inf
    assert not_finite(x) == [1, 3]
    x[1, 0, 2, 2] = np.inf  # infinities of both signs have no sum
    assert not_finite(x) == [1, 3]
    assert not_finite(np.full((3, 4), 3e38, np.float32)) == []  # their sum overflows
    assert not_finite(np.ones((3, 4), np.uint8)) == []


@given(st.integers(0, 1000), st.floats(0.1, 1e4))
def test_log_probabilities(seed, scale):
    logits = (scale * np.random.default_rng(seed).normal(size=(4, 6))).astype(np.float32)
    expected = torch.from_numpy(logits).log_softmax(1).numpy()
    np.testing.assert_allclose(log_softmax(logits), expected, rtol=1e-4, atol=1e-4)


def test_a_masked_class_stays_masked_and_a_broken_row_breaks_no_other():
    logits = np.array([[0, -np.inf, 0], [np.nan, 0, 0], [1, 2, 3]], np.float32)
    found = log_softmax(logits)
    assert found[0].tolist() == pytest.approx([-np.log(2), -np.inf, -np.log(2)])
    assert np.isnan(found[1]).all()
    assert np.exp(found[2]).sum() == pytest.approx(1)
