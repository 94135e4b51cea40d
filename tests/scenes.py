"""Random images for the tests of the corruptions."""

import numpy as np

SETS = ("cifar", "imagenet")


def rng(seed=0):
    return np.random.default_rng(seed)


def colours(*shape, seed=0):
    return rng(seed).integers(0, 256, (*shape, 3)).astype(np.float32)


def scenes(count, side):
    """Images with the spectrum of photographs."""
    frequency = np.maximum(side * np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)), 1)
    waves = np.fft.rfft2(rng().standard_normal((count, 4, side, side))) / frequency**1.3
    fields = np.fft.irfft2(waves, (side, side))
    fields = (fields[:, :1] + 0.5 * fields[:, 1:]).transpose(0, 2, 3, 1)
    return np.clip(120 + 45 * fields / fields.std(), 0, 255).astype(np.uint8)
