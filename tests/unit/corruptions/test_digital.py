"""Digital corruptions against closed forms and plain loops."""

import colorsys
import io

import numpy as np
import pytest
from PIL import Image

from delta_tta.corruptions import corrupt, digital, weather
from delta_tta.corruptions.constants import CONSTANTS
from scenes import SETS, colours, rng, scenes


def pixelwise(function, x):
    return np.array([function(*colorsys.rgb_to_hsv(*pixel / 255)) for pixel in x.reshape(-1, 3)]).reshape(x.shape) * 255


ODD = np.array([[0, 0, 0], [255, 255, 255], [9, 9, 9], [255, 0, 0], [1, 0, 0], [0, 128, 128], [7, 7, 8]], np.float32)


PIXELS = np.concatenate([ODD, colours(500)])[None, None]


@pytest.mark.parametrize("amount", [0.05, 0.3, 0.5])
def test_brightness_raises_the_value_of_hsv(amount):
    expected = pixelwise(lambda h, s, v: colorsys.hsv_to_rgb(h, s, min(v + amount, 1)), PIXELS)
    assert np.abs(weather.brightness(PIXELS.copy(), amount, []) - expected).max() < 0.01


@pytest.mark.parametrize("constant", [*CONSTANTS["cifar"]["saturate"], *CONSTANTS["imagenet"]["saturate"]])
def test_saturate_maps_the_saturation_of_hsv(constant):
    factor, offset = constant
    expected = pixelwise(lambda h, s, v: colorsys.hsv_to_rgb(h, min(s * factor + offset, 1), v), PIXELS)
    assert np.abs(digital.saturate(PIXELS.copy(), constant, []) - expected).max() < 0.01


@pytest.mark.parametrize("amount", [0.75, 0.05])
def test_contrast_pulls_each_channel_to_its_mean(amount):
    x = colours(3, 17, 23)
    mean = x.astype(np.float64).mean(axis=(1, 2), keepdims=True)
    assert np.abs(digital.contrast(x.copy(), amount, []) - (amount * (x - mean) + mean)).max() < 1e-3


@pytest.mark.parametrize(("severity", "side"), [(2, 2), (5, 4)])
def test_pixelate_averages_blocks(severity, side):
    clean = colours(2, 32, 24).astype(np.uint8)
    blocks = corrupt(clean, "pixelate", severity, "imagenet").reshape(2, 32 // side, side, 24 // side, side, 3)
    assert (blocks == blocks[:, :, :1, :, :1]).all()
    means = clean.reshape(blocks.shape).mean(axis=(2, 4))
    assert np.abs(blocks[:, :, 0, :, 0] - means).max() <= 1  # rounded twice: rows, columns


@pytest.mark.parametrize("constants", SETS)
def test_jpeg_is_pillows(constants):
    clean = scenes(1, 50)[0]
    for severity, quality in enumerate(CONSTANTS[constants]["jpeg_compression"], 1):
        file = io.BytesIO()
        Image.fromarray(clean).save(file, "JPEG", quality=quality)
        assert (corrupt(clean, "jpeg_compression", severity, constants) == np.asarray(Image.open(file))).all()


def test_the_elastic_map_moves_pixels():
    ramp = np.broadcast_to(4 * np.arange(48, dtype=np.float32)[:, None], (1, 48, 48, 3)).copy()
    local = digital.elastic_transform(ramp.copy(), (12.5, 0.01, 0.005, 0.0), [rng()])
    assert 0 <= local.min() < local.max() <= 188
    assert 0.2 < np.abs(local - ramp).max() / 4 <= 12.5 * 0.005 * 48  # at most alpha times the largest draw
    assert np.abs(digital.wobble(ramp[0], 0, rng()) - ramp[0]).max() < 0.01
    moved = digital.wobble(ramp[0], 2, rng())[16:32, 16:32, 0]
    assert np.abs(moved - ramp[0, 16:32, 16:32, 0]).max() > 0.5
    assert max(np.abs(np.diff(moved, 2, axis=axis)).max() for axis in (0, 1)) < 0.3  # a plane is a plane still
