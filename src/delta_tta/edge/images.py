"""What is done to images before the network sees them, in numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..evidence import Array
from ..rules.domain import every_nth_row
from .network import Images


def mirror_images(x: Images) -> Images | None:
    """Return the mirror images of a batch (B, C, …, W); None for input without height and width."""
    return None if x.ndim < 4 else np.ascontiguousarray(x[..., ::-1])


def differences(x: Images) -> npt.NDArray[np.float64] | None:
    """Return mean and mean square of the second differences along the width, (B, C, 2); None without a width."""
    if x.ndim < 4 or x.shape[-1] < 3:
        return None
    pixels = x[..., :: every_nth_row(x.shape[-2]), :].astype(np.float32, copy=False)
    bends = (pixels[..., 2:] - 2 * pixels[..., 1:-1] + pixels[..., :-2]).reshape(*x.shape[:2], -1)  # (B, C, n)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.stack([bends.mean(2), np.square(bends).mean(2)], 2).astype(np.float64)


def not_finite(x: Images) -> list[int]:
    """Return which samples hold NaN or infinity."""
    if x.dtype.kind != "f":
        return []
    with np.errstate(over="ignore", invalid="ignore"):  # the sum of finite numbers may overflow: then look
        total = x.sum(dtype=x.dtype)
    if np.isfinite(total):
        return []
    found: list[int] = np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(1)).tolist()
    return found


def log_softmax(logits: Array) -> Array:
    """Return log-probabilities, (B, K); a row that is not finite gives NaN."""
    with np.errstate(invalid="ignore"):
        shifted = logits - logits.max(1, keepdims=True)
        found: Array = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return found
