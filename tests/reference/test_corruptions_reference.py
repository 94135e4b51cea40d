"""Our corruptions against imagecorruptions-imaug: pixel by pixel where the draws can be shared, else by statistics."""

import functools

import imagecorruptions
import numpy as np
import pytest

from delta_tta.corruptions import FUNCTIONS, TYPES, VALIDATION, corrupt
from delta_tta.corruptions.constants import IMAGENET

SIDE = 224
NAMES = (*TYPES, *VALIDATION)
DETERMINISTIC = {
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
    "gaussian_blur",
    "saturate",
}
SAMPLES = {**dict.fromkeys(NAMES, 6), **dict.fromkeys(DETERMINISTIC, 2), "fog": 48, "frost": 12, "motion_blur": 12}
"""Images per severity; clouds of fog differ a lot, and so do the six pictures of frost and the angles of motion."""

STATISTICS = ("mean", "spread", "PSNR", "4-8", "8-16", "16-32", "32-64", "64-112", "over 112")
"""Grey levels, grey levels, dB, then the power of the grey image in bands of cycles per side, dB."""

FREQUENCY = SIDE * np.hypot(np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE))
BAND = np.digitize(FREQUENCY, (4, 8, 16, 32, 64, 112)).ravel()


@functools.cache
def scenes():
    """Six images with the spectrum of photographs, correlated channels and some hard edges."""
    draw = np.random.default_rng(0)

    def field(slope):
        noise = np.fft.rfft2(draw.standard_normal((SIDE, SIDE))) / np.maximum(FREQUENCY, 1) ** slope
        noise[0, 0] = 0
        smooth = np.fft.irfft2(noise, (SIDE, SIDE))
        return smooth / smooth.std()

    images = []
    for _ in range(6):
        light = field(1.2)
        image = np.stack([light + 0.35 * field(1.2) for _ in range(3)], axis=-1)
        for _ in range(5):
            image[field(2) > draw.uniform(0.3, 1.2)] += draw.normal(0, 0.9, 3)
        images.append(np.clip(118 + 48 * image / image.std(), 0, 255).astype(np.uint8))
    return np.stack(images)


class Shared:
    """A generator for our functions that draws what their package draws after `np.random.seed(seed)`."""

    def __init__(self, seed):
        self.state = np.random.RandomState(seed)
        self.uniform = self.state.uniform

    def standard_normal(self, size, dtype):
        full = self.state.standard_normal((SIDE, SIDE, *size[2:]))  # their snow draws more than it uses
        rows, columns = ((SIDE - n) // 2 for n in size[:2])
        return full[rows : rows + size[0], columns : columns + size[1]].astype(dtype)

    def random(self, size, dtype):
        draws, step = np.zeros(size, dtype), size[0]
        while step >= 2:  # theirs come level by level
            on, off = slice(0, None, step), slice(step // 2, None, step)
            for place in ((off, off), (on, off), (off, on)):
                draws[place] = self.state.uniform(size=draws[place].shape)
            step //= 2
        return draws

    def integers(self, low, high=None):
        if high is None:
            return self.state.randint(low)
        more = int(np.ceil(1.1 * (high - 1 + SIDE))) - SIDE  # their pictures of frost are a tenth larger
        return round(self.state.randint(0, more) * (high - 1) / more)


def shared(name, severity, images, seeds):
    values = FUNCTIONS[name](images.astype(np.float32), IMAGENET[name][severity - 1], [Shared(seed) for seed in seeds])
    return np.clip(values, 0, 255).astype(np.uint8)


def theirs(name, severity, images, seeds):
    before, made = np.random.get_state(), []
    for image, seed in zip(images, seeds, strict=True):
        np.random.seed(seed)
        own = {"seed": seed} if name in ("impulse_noise", "glass_blur") else {}  # not from numpy's global state
        made.append(imagecorruptions.corrupt(image, severity, name, **own))
    np.random.set_state(before)
    return np.stack(made)
