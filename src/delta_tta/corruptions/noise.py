"""Noise: gaussian, shot, impulse, speckle."""

from __future__ import annotations

import numpy as np

from .pixels import Draws, Floats


def gaussian_noise(x: Floats, scale: float, draws: Draws) -> Floats:
    """Add normal noise of one spread everywhere."""
    for image, draw in zip(x, draws, strict=True):
        image += (255 * scale) * draw.standard_normal(image.shape, np.float32)
    return x


def shot_noise(x: Floats, photons: float, draws: Draws) -> Floats:
    """Count photons: Poisson with `photons` at full brightness."""
    for image, draw in zip(x, draws, strict=True):
        image[:] = draw.poisson(image * (photons / 255))
    x *= 255 / photons
    return x


def impulse_noise(x: Floats, amount: float, draws: Draws) -> Floats:
    """Set a share of the values to white or black, half each."""
    for image, draw in zip(x, draws, strict=True):
        u = draw.random(image.shape, np.float32)
        image[u < amount] = 0
        image[u < amount / 2] = 255
    return x


def speckle_noise(x: Floats, scale: float, draws: Draws) -> Floats:
    """Multiply with 1 plus normal noise."""
    for image, draw in zip(x, draws, strict=True):
        image *= 1 + scale * draw.standard_normal(image.shape, np.float32)
    return x
