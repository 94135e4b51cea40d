"""Weather against closed forms and plain loops."""

import itertools

import numpy as np
import pytest

from delta_tta.corruptions import corrupt, frost, weather
from scenes import SETS, colours, rng, scenes


@pytest.mark.parametrize(("size", "decay"), [(2, 3), (8, 1.7), (32, 2)])
def test_a_cloud_is_made_diamond_by_square(size, decay):
    draws = rng().random((2, size, size), np.float32)
    made = weather.plasma(draws, decay)
    for cloud, draw in zip(made, draws.astype(np.float64), strict=True):
        plain, step, wobble = np.zeros((size, size)), size, 100.0

        def put(row, column, around):
            mean = sum(plain[(row + y) % size, (column + x) % size] for y, x in around) / 4  # noqa: B023 - used at once
            plain[row, column] = mean + wobble**2 * (2 * draw[row, column] - 1)  # noqa: B023

        while step >= 2:
            half, grid = step // 2, range(0, size, step)
            sides = [(-half, 0), (half, 0), (0, -half), (0, half)]
            for row, column in itertools.product(grid, grid):
                put(row + half, column + half, itertools.product((-half, half), repeat=2))
            for row, column in itertools.product(grid, grid):
                put(row, column + half, sides)
                put(row + half, column, sides)
            step, wobble = half, wobble / decay
        plain = (plain - plain.min()) / (plain.max() - plain.min())
        assert np.abs(cloud - plain).max() < 1e-4
        assert (cloud.min(), cloud.max()) == (0, 1)


def test_frost_is_a_window_of_a_picture_over_the_image():
    x, draw = colours(1, 24, 30), rng(3)
    made = weather.frost(x.copy(), (0.7, 0.5, 1), [rng(3)])
    picture = frost.pictures(1, 24, 30)[draw.integers(6)]
    top, left = (draw.integers(0, side + 1) for side in (len(picture) - 24, len(picture[0]) - 30))
    assert np.abs(made - (0.7 * x + 0.5 * picture[top : top + 24, left : left + 30])).max() < 1e-3


@pytest.mark.parametrize("constants", SETS)
def test_snow_and_water_brighten_and_mud_covers(constants):
    clean, brown = scenes(2, 64).astype(int), np.array([63, 42, 20])
    for severity in range(1, 6):
        assert (corrupt(clean.astype(np.uint8), "snow", severity, constants) >= clean - 1).all()
        made = corrupt(clean.astype(np.uint8), "spatter", severity, constants)
        low, high = (clean, 255) if severity <= 3 else (np.minimum(clean, brown) - 1, np.maximum(clean, brown))
        assert ((low <= made) & (made <= high)).all()
