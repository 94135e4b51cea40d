"""Blur against closed forms and plain loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_tta.corruptions import blur, corrupt
from scenes import SETS, rng


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
