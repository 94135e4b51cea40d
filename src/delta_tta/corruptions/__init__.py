"""The corruptions of CIFAR-C and ImageNet-C (Hendrycks & Dietterich 2019), batched, fast and reproducible.

corrupt(images, "fog", severity=5, constants="cifar", seed=0)

Needs the extra `data` (opencv-python-headless and Pillow).
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError, SettingError, install, nearest
from .constants import CONSTANTS, FAMILIES, TYPES, VALIDATION, ConstantSet

__all__ = ["FAMILIES", "TYPES", "VALIDATION", "corrupt", "describe", "frost_source"]

Images = npt.NDArray[np.uint8]

VERSION = 1
"""Raised when the same arguments give other pixels: what was kept of the old ones is then made again."""
CHUNK = 2**17
"""Pixels worked on at once: few enough to stay in the processor's cache."""


def corrupt(
    images: Images,
    name: str,
    severity: int = 5,
    constants: ConstantSet = "cifar",
    seed: int = 0,
    index: Sequence[int] | npt.NDArray[np.int64] | None = None,
) -> Images:
    """Return corrupted copies of RGB images, uint8 (N, H, W, 3).

    The same image with the same seed gets the same bytes, in any order, batch or process.

    Args:
        images: uint8, (N, H, W, 3), or one image (H, W, 3).
        name: one of `TYPES` or `VALIDATION`.
        severity: 1 to 5.
        constants: what the severities mean: "cifar" (meant for 32×32) or "imagenet" (224×224).
        seed: of the random draws.
        index: one integer an image, such as its place in the data set, to tell equal images apart; without it an image
            is known by its pixels.

    Examples:
        >>> clean = np.full((2, 32, 32, 3), 128, np.uint8)
        >>> corrupt(clean, "contrast").tolist() == clean.tolist()  # nothing to pull towards the mean
        True
    """
    constant = _constant(name, severity, constants)
    function = _functions()[name]
    single, batch = _checked(images)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise SettingError(f"Expected `seed` to be an integer of at least 0, but got {seed!r}.")
    out = np.empty(batch.shape, np.uint8)
    keys = [_fingerprint(image) for image in batch] if index is None else _keys(index, len(batch))
    kind = zlib.crc32(name.encode())
    per_chunk = max(1, CHUNK // max(batch[0].size // 3, 1)) if len(batch) else 1
    for start in range(0, len(batch), per_chunk):
        here = slice(start, start + per_chunk)
        draws = [np.random.default_rng((seed, kind, severity, key)) for key in keys[here]]
        values = function(batch[here].astype(np.float32), constant, draws)
        out[here] = np.clip(values, 0, 255)  # cut off towards zero, as the official sets are
    return out[0] if single else out


def describe(name: str, severity: int, constants: ConstantSet = "cifar") -> str:
    """Return what `corrupt` applies, for the record: type, severity, constants, and where frost comes from."""
    _constant(name, severity, constants)
    return f"{name} {severity} ({constants} constants{', ' + frost_source() if name == 'frost' else ''})"


def frost_source() -> str:
    """Return what `frost` lays over the images: "photographs" (of `imagecorruptions-imaug`) or "procedural texture"."""
    _functions()
    from . import frost

    return "photographs" if frost.folder() else "procedural texture"


@functools.cache
def _functions() -> dict[str, Callable[..., npt.NDArray[np.float32]]]:
    """Return the corruptions by name; OpenCV and Pillow are loaded only now, since the core does without."""
    try:
        from . import blur, digital, noise, weather
    except ImportError as error:
        raise ImportError(f"Corruptions need OpenCV and Pillow: {install('data')}.") from error
    modules = (noise, blur, weather, digital)
    return {n: getattr(one, n) for one in modules for n in (*TYPES, *VALIDATION) if hasattr(one, n)}


def _constant(name: str, severity: int, constants: ConstantSet) -> Any:
    if not isinstance(constants, str) or constants not in CONSTANTS:
        raise SettingError(f"Unknown constants {constants!r}.{nearest(str(constants), CONSTANTS)}")
    if name not in CONSTANTS[constants]:
        raise SettingError(f"Unknown corruption {name!r}.{nearest(str(name), (*TYPES, *VALIDATION))}")
    if isinstance(severity, bool) or not isinstance(severity, int | np.integer) or not 1 <= severity <= 5:
        raise SettingError(f"Expected `severity` to be an integer from 1 to 5, but got {severity!r}.")
    return CONSTANTS[constants][name][severity - 1]


def _checked(images: Images) -> tuple[bool, Images]:
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        got = f"{type(images).__name__}" + (f" of {images.dtype}" if hasattr(images, "dtype") else "")
        raise InputError(f"Expected images as a numpy array of uint8, 0 to 255, but got {got}.")
    if images.ndim not in (3, 4) or images.shape[-1] != 3 or 0 in images.shape[-3:]:
        raise InputError(f"Expected RGB images of shape (N, H, W, 3), but got {images.shape}.")
    single = images.ndim == 3
    return single, images[None] if single else images


def _keys(index: Any, count: int) -> list[int]:
    numbers = np.asarray(index)
    if numbers.shape != (count,) or (count and (not np.issubdtype(numbers.dtype, np.integer) or numbers.min() < 0)):
        raise InputError(f"Expected `index` to be {count} integers of at least 0, one an image, but got {index!r}.")
    return [int(number) for number in numbers]


def _fingerprint(image: Images) -> int:
    digest = hashlib.blake2b(image.tobytes(), digest_size=8, salt=str(image.shape[:2]).encode()[:16])
    return int.from_bytes(digest.digest(), "little")
