"""Random views of training images."""

import numpy as np
import pytest
from PIL import Image

from delta_tta import data
from delta_tta.data.crops import random_view


def gradient(height, width):
    """Red tells the column, green the row."""
    rows, columns = np.meshgrid(np.linspace(0, 255, height), np.linspace(0, 255, width), indexing="ij")
    return np.stack([columns, rows, np.full_like(rows, 99)], axis=2).astype(np.uint8)


@pytest.fixture
def large(tmp_path):
    (tmp_path / "a").mkdir()
    Image.fromarray(gradient(120, 200)).save(tmp_path / "a" / "0.png")
    return data.folder(tmp_path, size=80)


def test_a_small_image_is_shifted_by_up_to_an_eighth_and_mirrored():
    images = data.ArraySet("a", gradient(32, 32)[None] + 0, [0], ["a"])
    whole = images.images[0]
    middle = [0, 0, 0.5, 0.5]
    np.testing.assert_array_equal(random_view(images, 0, [*middle, 0.9]), whole)
    np.testing.assert_array_equal(random_view(images, 0, [*middle, 0.1]), whole[:, ::-1])
    corner = random_view(images, 0, [0, 0, 0, 0.999, 0.9])  # 4 pixels above, 4 pixels beyond the right edge
    np.testing.assert_array_equal(corner[4:, :28], whole[:28, 4:])
    assert not corner[:4].any()
    assert not corner[:, 28:].any()


def test_of_a_large_image_a_part_of_its_own_is_scaled(large):
    whole = random_view(large, 0, [1.0, 0.5, 0, 0, 0.9]).astype(float)  # all of the area, but for the shape
    assert whole.shape == (80, 80, 3)
    seen = random_view(large, 0, [0.0, 0.5, 1.0, 0.0, 0.9]).astype(float)  # 8 % of it, in the upper right corner
    side = np.sqrt(0.08 * 120 * 200)
    assert seen[..., 0].max() > 250
    assert seen[..., 1].min() < 4
    assert seen[..., 0].min() == pytest.approx(255 * (1 - side / 200), abs=3)
    assert seen[..., 1].max() == pytest.approx(255 * side / 120, abs=3)
    mirrored = random_view(large, 0, [0.0, 0.5, 1.0, 0.0, 0.1])
    np.testing.assert_array_equal(mirrored, seen[:, ::-1])


def test_every_part_lies_in_the_image_and_has_a_share_of_it(large):
    draw = np.random.default_rng(0)
    for draws in draw.random((200, 5)):
        view = random_view(large, 0, draws).astype(float)
        wide, high = (np.ptp(view[..., channel]) / 255 for channel in (0, 1))
        share, ratio = wide * high, wide * 200 / (high * 120)
        assert 0.07 < share <= 1
        assert 0.7 < ratio < 200 / 120 + 0.05
        assert np.unique(view[..., 2]).tolist() == [99], "nothing from beyond the edge"
