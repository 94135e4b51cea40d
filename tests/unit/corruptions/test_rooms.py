"""Single corruptions against closed forms and plain loops."""

import colorsys
import io
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from delta_tta.corruptions import TYPES, VALIDATION, blur, corrupt, digital, frost, noise, pixels, weather
from delta_tta.corruptions.constants import CONSTANTS

SETS = ("cifar", "imagenet")


def rng(seed=0):
    return np.random.default_rng(seed)


def colours(*shape, seed=0):
    return rng(seed).integers(0, 256, (*shape, 3)).astype(np.float32)


def grey(level, *shape):
    return np.full((*shape, 3), level, np.float32)


def scenes(count, side):
    """Images with the spectrum of photographs."""
    frequency = np.maximum(side * np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)), 1)
    waves = np.fft.rfft2(rng().standard_normal((count, 4, side, side))) / frequency**1.3
    fields = np.fft.irfft2(waves, (side, side))
    fields = (fields[:, :1] + 0.5 * fields[:, 1:]).transpose(0, 2, 3, 1)
    return np.clip(120 + 45 * fields / fields.std(), 0, 255).astype(np.uint8)


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


UNSTEADY = {
    "glass_blur": SETS,  # the constants trade blur, distance and rounds against each other
    "frost": SETS,  # keeps less and adds more: nearer to or farther from the image, as the picture is
    "saturate": SETS,  # 1 and 2 fade, 3 to 5 overdo
    "spatter": ("cifar",),  # from water (3) to mud (4)
    "elastic_transform": ("cifar",),  # the affine part shrinks with the severity
    "fog": ("imagenet",),  # 3 to 5 have rougher clouds rather than more
}
"""Types whose error does not always grow with the severity, by their definition."""


@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("name", [*TYPES, *VALIDATION])
def test_the_error_grows_with_the_severity(name, constants):
    clean = scenes(12, 32) if constants == "cifar" else scenes(4, 112)
    errors = [((corrupt(clean, name, s, constants) - clean.astype(float)) ** 2).mean() for s in range(1, 6)]
    assert errors[0] > 1
    if constants not in UNSTEADY.get(name, ()):
        assert (np.diff(errors) > 0).all()
