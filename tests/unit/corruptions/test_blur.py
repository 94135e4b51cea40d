"""Blur against closed forms and plain loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_tta.corruptions import blur, corrupt, pixels
from scenes import SETS, colours, rng


def grey(level, *shape):
    return np.full((*shape, 3), level, np.float32)


@settings(max_examples=15)
@given(st.integers(1, 14), st.integers(1, 14), st.integers(1, 4), st.integers(0, 99))
def test_scattering_is_a_visit_from_the_last_pixel_to_the_first(height, width, distance, seed):
    sources = blur.scatter(height, width, distance, rng(seed))
    rows, columns = (range(distance + 1, side - distance + 1) for side in (height, width))
    down, right = rng(seed).integers(-distance, distance, (2, len(rows), len(columns)))
    image = np.arange(height * width).reshape(height, width)
    for row in reversed(rows):
        for column in reversed(columns):
            here = row - rows[0], column - columns[0]
            image[row, column] = image[row + down[here], column + right[here]]
    assert sources.tolist() == image.ravel().tolist()


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


@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("level", [0, 77, 200, 255])
def test_what_is_flat_stays_flat_when_zoomed_or_bent(level, constants):
    clean = grey(level, 1, 30, 41).astype(np.uint8)
    for name in ("zoom_blur", "elastic_transform", "pixelate", "contrast"):
        for severity in range(1, 6):
            assert (corrupt(clean, name, severity, constants) == level).all()


@pytest.mark.parametrize("sigma", [0.4, 1, 3])
def test_gaussian_blur_of_a_point_is_a_gaussian(sigma):
    image = grey(0, 1, 31, 31)
    image[0, 15, 15] = 255
    line = np.exp(-(np.arange(-15, 16) ** 2) / (2 * sigma**2))
    line[np.abs(np.arange(-15, 16)) > int(4 * sigma + 0.5)] = 0
    expected = 255 * np.outer(line, line) / line.sum() ** 2
    assert np.abs(blur.gaussian_blur(image, sigma, [])[0, ..., 1] - expected).max() < 1e-3
