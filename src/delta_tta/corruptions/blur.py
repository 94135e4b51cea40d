"""Blur: defocus, glass, motion, zoom, gaussian."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from .pixels import Draws, Floats, centre, centre_zoom, gaussian_filter, move


def gaussian_blur(x: Floats, sigma: float, draws: Draws) -> Floats:
    """Blur by a Gaussian."""
    return np.stack([gaussian_filter(image, sigma) for image in x])


def defocus_blur(x: Floats, constant: tuple[float, float], draws: Draws) -> Floats:
    """Blur by a disk whose edge is softened."""
    radius, soft = constant
    reach, window = (8, 3) if radius <= 8 else (int(radius), 5)
    line = np.arange(-reach, reach + 1)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float32)
    disk = cv2.GaussianBlur(disk / disk.sum(), (window, window), soft)
    edge = int(np.ceil(radius)) + window // 2  # the kernel is zero beyond
    if edge <= 3:  # larger ones go by Fourier transform, for which zeros cost nothing
        disk = disk[reach - edge : reach + edge + 1, reach - edge : reach + edge + 1]
    return np.stack([cv2.filter2D(image, -1, disk) for image in x])


def glass_blur(x: Floats, constant: tuple[float, int, int], draws: Draws) -> Floats:
    """Blur, let every pixel take the value of one nearby, blur again."""
    sigma, distance, rounds = constant
    height, width = x.shape[1:3]
    for image, draw in zip(x, draws, strict=True):
        pixels = np.floor(gaussian_filter(image, sigma)).reshape(-1, 3)
        for _ in range(rounds):
            pixels = pixels[scatter(height, width, distance, draw)]
        image[:] = gaussian_filter(pixels.reshape(image.shape), sigma)
    return x


def scatter(height: int, width: int, distance: int, draw: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return from which pixel each pixel gets its value, flat, (H · W,).

    Pixels are visited from the last to the first, and each copies the present value of one at most `distance` away; so
    a copy of a pixel already visited is a copy of what that one copied. Following these chains by doubling replaces
    the visit one by one.
    """
    source = np.arange(height * width).reshape(height, width)
    inner = np.s_[distance + 1 : height - distance + 1, distance + 1 : width - distance + 1]
    steps = draw.integers(-distance, distance, (2, *source[inner].shape))
    source[inner] += steps[0] * width + steps[1]
    end = source.reshape(-1)
    copied = end > np.arange(len(end))  # from a pixel that had itself been visited: its end is not known yet
    while copied.any():
        here = np.flatnonzero(copied)
        via = end[here]
        end[here], copied[here] = end[via], copied[via]
    return end


def motion_blur(x: Floats, constant: tuple[int, float], draws: Draws) -> Floats:
    """Blur along a line, within 45° of the horizontal."""
    return np.stack([move(image, *constant, draw.uniform(-45, 45)) for image, draw in zip(x, draws, strict=True)])


def zoom_blur(x: Floats, constant: tuple[float, float], draws: Draws) -> Floats:
    """Average the picture with itself, magnified step by step."""
    height, width = x.shape[1:3]
    factors = np.arange(1, *constant)
    total = x.copy()
    for factor in factors:
        window = centre(height, width, factor)
        for image, summed in zip(x, total, strict=True):
            cv2.accumulate(centre_zoom(image[window], factor, height, width), summed)
    total /= len(factors) + 1
    return total
