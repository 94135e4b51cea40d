"""What the corruptions share: the types they work on, filters, and zooming as scipy's `zoom` does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import cv2
import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
"""Images, (N, H, W, 3) in 0 to 255; a corruption may work in place and leave the range, clipping comes after."""

Draws: TypeAlias = Sequence[np.random.Generator]
"""One random generator an image: what an image gets does not depend on its neighbours."""


def gaussian_filter(image: Floats, sigma: float, truncate: float = 4, border: int = cv2.BORDER_REPLICATE) -> Floats:
    """Return one image, (H, W) or (H, W, 3), blurred by a Gaussian cut off at `truncate` sigmas."""
    size = 2 * int(truncate * sigma + 0.5) + 1
    return cv2.GaussianBlur(image, (size, size), sigma, borderType=border)


def centre_zoom(image: Floats, factor: float, height: int, width: int) -> Floats:
    """Return height × width of the magnified centre; corners align, then the surplus is cut at the far sides.

    `image` is the centre only, (h, w) or (h, w, 3): see `centre`.
    """
    rows, columns = image.shape[:2]
    scale = [(side - 1) / max(round(side * factor) - 1, 1) for side in (columns, rows)]
    to_source = np.array([[scale[0], 0, 0], [0, scale[1], 0]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return cv2.warpAffine(image, to_source, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE)


def centre(height: int, width: int, factor: float) -> tuple[slice, slice]:
    """Return the window that fills the picture when magnified by `factor`."""
    sides = []
    for side in (height, width):
        kept = int(np.ceil(side / factor))
        sides.append(slice((side - kept) // 2, (side - kept) // 2 + kept))
    return sides[0], sides[1]


def streak(radius: int, sigma: float, angle: float) -> Floats:
    """Return the kernel of a motion: half a Gaussian laid along `angle` (degrees), from its middle outwards."""
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    turn = np.deg2rad(angle)
    down, right = (np.ceil(steps * part - 0.5).astype(int) for part in (np.sin(turn), np.cos(turn)))
    reach = int(max(np.abs(down).max(), np.abs(right).max()))
    kernel = np.zeros((2 * reach + 1, 2 * reach + 1), np.float32)
    np.add.at(kernel, (reach + down, reach + right), weights / weights.sum())
    return kernel


def move(image: Floats, radius: int, sigma: float, angle: float) -> Floats:
    """Return one image blurred by a motion along `angle`."""
    kernel = streak(radius, sigma, angle)
    return cv2.filter2D(image, -1, kernel, borderType=cv2.BORDER_REPLICATE)


def hsv_value(x: Floats) -> Floats:
    """Return the V of HSV, (N, H, W, 1): the largest channel (numpy's max over an axis of three is slow)."""
    return np.maximum(np.maximum(x[..., :1], x[..., 1:2]), x[..., 2:])
