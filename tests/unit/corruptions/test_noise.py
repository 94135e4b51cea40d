"""Noise against closed forms and plain loops."""

import numpy as np
import pytest

from delta_tta.corruptions import noise
from scenes import rng


def grey(level, *shape):
    return np.full((*shape, 3), level, np.float32)


@pytest.mark.parametrize("scale", [0.04, 0.08, 0.1])
def test_gaussian_noise_has_its_spread_everywhere(scale):
    off = noise.gaussian_noise(grey(128, 1, 200, 200), scale, [rng()])[0] - 128
    assert off.std(axis=(0, 1)) == pytest.approx([255 * scale] * 3, rel=0.02)
    assert abs(off.mean()) < 4 * 255 * scale / np.sqrt(off.size)
    assert np.abs(np.corrcoef(off.reshape(-1, 3).T)[np.triu_indices(3, 1)]).max() < 0.02  # channels are independent


def test_speckle_noise_grows_with_the_value():
    for level in (20, 100, 250):
        off = noise.speckle_noise(grey(level, 1, 200, 200), 0.15, [rng()]) - level
        assert off.std() == pytest.approx(0.15 * level, rel=0.02)


@pytest.mark.parametrize("photons", [500, 60, 3])
@pytest.mark.parametrize("level", [0, 51, 204])
def test_shot_noise_counts_photons(photons, level):
    made = noise.shot_noise(grey(level, 1, 200, 200), photons, [rng()]).astype(np.float64)
    counts = made * photons / 255
    assert np.abs(counts - np.rint(counts)).max() < 1e-3
    expected = level * photons / 255
    assert counts.mean() == pytest.approx(expected, abs=4 * np.sqrt(expected / counts.size))
    assert counts.var() == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("amount", [0.01, 0.09, 0.27])
def test_impulse_noise_sets_its_share_of_the_values_half_white_half_black(amount):
    made = noise.impulse_noise(grey(128, 1, 300, 300), amount, [rng()])
    share = [float((made == level).mean()) for level in (0, 128, 255)]
    assert share == pytest.approx([amount / 2, 1 - amount, amount / 2], abs=4 * np.sqrt(amount / made.size))
    assert sum(share) == pytest.approx(1)
