"""What the corruptions share, against plain loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_tta.corruptions import pixels
from scenes import colours


@pytest.mark.parametrize("angle", [-135, -90, -60, -45, -20, 0, 13, 45])
def test_a_streak_sums_to_one_and_runs_out_along_its_angle(angle):
    kernel = pixels.streak(10, 3, angle)
    down, right = np.indices(kernel.shape) - len(kernel) // 2
    turn = np.deg2rad(angle)
    along, across = right * np.cos(turn) + down * np.sin(turn), down * np.cos(turn) - right * np.sin(turn)
    assert kernel.sum() == pytest.approx(1, abs=1e-6)
    assert np.abs(across[kernel > 0]).max() < 0.71
    assert -0.71 < along[kernel > 0].min() < 0.01 < 19 < along[kernel > 0].max() < 20.71


@settings(max_examples=15)
@given(st.integers(1, 8), st.floats(0.5, 6), st.floats(-135, 45), st.integers(5, 20), st.integers(5, 20))
def test_motion_is_a_sum_of_shifted_images(radius, sigma, angle, height, width):
    image = colours(height, width)
    weights = [np.exp(-(i**2) / (2 * sigma**2)) for i in range(2 * radius + 1)]
    total = np.zeros_like(image, np.float64)
    for i, weight in enumerate(weights):
        down = np.ceil(i * np.sin(np.deg2rad(angle)) - 0.5)
        right = np.ceil(i * np.cos(np.deg2rad(angle)) - 0.5)
        rows = np.clip(np.arange(height) + int(down), 0, height - 1)
        columns = np.clip(np.arange(width) + int(right), 0, width - 1)
        total += weight / sum(weights) * image[rows][:, columns]
    assert np.abs(pixels.move(image, radius, sigma, angle) - total).max() < 0.01
