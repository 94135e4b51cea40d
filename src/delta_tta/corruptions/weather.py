"""Weather: snow, frost, fog, brightness, spatter."""

from __future__ import annotations

import cv2
import numpy as np

from .frost import pictures
from .pixels import Draws, Floats, centre, centre_zoom, gaussian_filter, hsv_value, move


def brightness(x: Floats, amount: float, draws: Draws) -> Floats:
    """Raise the value of HSV: hue and saturation stay, so all three channels grow by one factor."""
    value = hsv_value(x)
    raised = np.minimum(value + 255 * amount, 255)
    x *= raised / np.maximum(value, 1)
    black = value[..., 0] == 0
    x[black] = raised[black]
    return x


def snow(x: Floats, constant: tuple[float, float, float, float, int, float, float], draws: Draws) -> Floats:
    """Whiten the scene, then let flakes fall: thresholded noise, magnified and blurred along its way down."""
    mean, spread, factor, threshold, radius, sigma, kept = constant
    height, width = x.shape[1:3]
    rows, columns = centre(height, width, factor)
    size = (rows.stop - rows.start, columns.stop - columns.start)
    grey = (x @ np.array([0.299, 0.587, 0.114], np.float32))[..., None]
    x = kept * x + (1 - kept) * np.maximum(x, grey * 1.5 + 127.5)
    for image, draw in zip(x, draws, strict=True):
        flakes = centre_zoom(mean + spread * draw.standard_normal(size, np.float32), factor, height, width)
        flakes[flakes < threshold] = 0
        flakes = np.rint(255 * move(np.clip(flakes, 0, 1), radius, sigma, draw.uniform(-135, -45)))
        image += (flakes + flakes[::-1, ::-1])[..., None]
    return x


def frost(x: Floats, constant: tuple[float, float, float], draws: Draws) -> Floats:
    """Lay a random window of a picture of frost over the image."""
    kept, added, scale = constant
    height, width = x.shape[1:3]
    ice = pictures(scale, height, width)
    for image, draw in zip(x, draws, strict=True):
        picture = ice[draw.integers(len(ice))]
        top, left = (
            draw.integers(0, have - want + 1) for have, want in zip(picture.shape, (height, width), strict=False)
        )
        image *= kept
        image += added * picture[top : top + height, left : left + width]
    return x


def fog(x: Floats, constant: tuple[float, float], draws: Draws) -> Floats:
    """Add a cloud of fractal noise and scale back to the image's own brightest value."""
    amount, decay = constant
    height, width = x.shape[1:3]
    size = 1 << (max(height, width) - 1).bit_length()
    cloud = plasma(np.stack([draw.random((size, size), np.float32) for draw in draws]), decay)
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    x += 255 * amount * cloud[:, :height, :width, None]
    x *= brightest / np.maximum(brightest + 255 * amount, 1)
    return x


def plasma(draws: Floats, decay: float) -> Floats:
    """Turn uniform draws, (N, S, S) with S a power of two, into diamond-square clouds in 0 to 1 on a torus.

    Each level puts the mean of four neighbours plus a wobble between the points of the level before; the wobble's
    amplitude starts at 100² and shrinks by decay² from level to level.
    """
    cloud = np.zeros_like(draws)
    size, step, wobble = draws.shape[1], draws.shape[1], 100.0
    while step >= 2:
        half = step // 2
        on, off = slice(0, size, step), slice(half, size, step)

        def put(rows: slice, columns: slice, total: Floats, amplitude: float = wobble**2) -> None:
            cloud[:, rows, columns] = total / 4 + amplitude * (2 * draws[:, rows, columns] - 1)

        corners = cloud[:, on, on]
        pairs = corners + np.roll(corners, -1, 1)
        put(off, off, pairs + np.roll(pairs, -1, 2))
        middles = cloud[:, off, off]
        put(on, off, middles + np.roll(middles, 1, 1) + corners + np.roll(corners, -1, 2))
        put(off, on, middles + np.roll(middles, 1, 2) + corners + np.roll(corners, -1, 1))
        step, wobble = half, wobble / decay
    cloud -= cloud.min(axis=(1, 2), keepdims=True)
    cloud /= np.maximum(cloud.max(axis=(1, 2), keepdims=True), np.finfo(np.float32).tiny)
    return cloud


def spatter(x: Floats, constant: tuple[float, float, float, float, float, bool], draws: Draws) -> Floats:
    """Splash water (pale turquoise, brightens) or mud (brown, covers) on the lens."""
    mean, spread, sigma, threshold, strength, mud = constant
    for image, draw in zip(x, draws, strict=True):
        liquid = gaussian_filter(mean + spread * draw.standard_normal(image.shape[:2], np.float32), sigma)
        liquid[liquid < threshold] = 0
        if mud:
            cover = gaussian_filter((liquid > threshold).astype(np.float32), strength)
            cover[cover < 0.8] = 0
            image *= 1 - cover[..., None]
            image += cover[..., None] * np.array([63, 42, 20], np.float32)
        else:
            image += strength * drops(liquid)[..., None] * np.array([175, 238, 238], np.float32)
    return x


def drops(liquid: Floats) -> Floats:
    """Return how much each pixel shines, 0 to 1: water gets a rim of light on one side, by distance from its edge."""
    levels = np.minimum(liquid * 255, 255).astype(np.uint8)
    distance = cv2.distanceTransform(255 - cv2.Canny(levels, 50, 150), cv2.DIST_L2, 5)
    depth = cv2.equalizeHist(cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8))
    relief = cv2.filter2D(depth, cv2.CV_8U, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32))
    shine = levels * cv2.blur(relief, (3, 3)).astype(np.float32)
    shine /= max(float(shine.max()), 1)
    return shine
