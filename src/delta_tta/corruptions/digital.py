"""Digital: contrast, elastic transform, pixelate, jpeg, saturate."""

from __future__ import annotations

import io

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from .pixels import Draws, Floats, gaussian_filter, hsv_value


def contrast(x: Floats, amount: float, draws: Draws) -> Floats:
    """Pull every channel towards its mean."""
    mean = x.mean(axis=(1, 2), keepdims=True, dtype=np.float64).astype(np.float32)  # exact for large images too
    x -= mean
    x *= amount
    x += mean
    return x


def saturate(x: Floats, constant: tuple[float, float], draws: Draws) -> Floats:
    """Map the saturation of HSV linearly; hue and value stay. Grey pixels have the hue of red."""
    factor, offset = constant
    value = hsv_value(x)
    spread = value - x
    range_ = hsv_value(spread)
    saturation = range_ / np.maximum(value, 1)
    wanted = np.clip(saturation * factor + offset, 0, 1)
    spread *= wanted * value / np.maximum(range_, 1)
    grey = range_[..., 0] == 0
    spread[grey, 1:] = (wanted * value)[grey]
    return value - spread


def elastic_transform(x: Floats, constant: tuple[float, float, float, float], draws: Draws) -> Floats:
    """Shift pixels by a smooth random field, after a random affine map where the constants have one.

    The constant is (alpha, sigma, largest draw, affine); sigma and largest draw below 1 are shares of the side.
    """
    alpha, sigma, largest, affine = constant
    height, width = x.shape[1:3]
    if not affine:
        sigma, largest = sigma * height, largest * height
    columns, rows = (line.astype(np.float32) for line in np.meshgrid(np.arange(width), np.arange(height)))
    for image, draw in zip(x, draws, strict=True):
        if affine:
            image[:] = wobble(image, affine, draw)
        if alpha:
            right, down = (
                alpha
                * gaussian_filter(
                    draw.uniform(-largest, largest, (height, width)).astype(np.float32), sigma, 3, cv2.BORDER_REFLECT
                )
                for _ in range(2)
            )
            image[:] = cv2.remap(image, columns + right, rows + down, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
    return x


def wobble(image: Floats, reach: float, draw: np.random.Generator) -> Floats:
    """Return the image under the affine map that moves three points around its centre by up to `reach` pixels."""
    height, width = image.shape[:2]
    centre, side = np.array([height // 2, width // 2]), min(height, width) // 3
    points = (centre + side * np.array([[1, 1], [1, -1], [-1, -1]])).astype(np.float32)
    moved = points + draw.uniform(-reach, reach, points.shape).astype(np.float32)
    matrix = cv2.getAffineTransform(points, moved)
    return cv2.warpAffine(image, matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101)


def pixelate(x: Floats, share: float, draws: Draws) -> Floats:
    """Shrink by averaging boxes, enlarge by repeating."""
    height, width = x.shape[1:3]
    small = max(int(width * share), 1), max(int(height * share), 1)
    pictures = (Image.fromarray(image) for image in x.astype(np.uint8))
    boxes = (picture.resize(small, Image.Resampling.BOX) for picture in pictures)
    return np.stack([np.asarray(box.resize((width, height), Image.Resampling.NEAREST)) for box in boxes]).astype(
        np.float32
    )


def jpeg_compression(x: Floats, quality: int, draws: Draws) -> Floats:
    """Write and read as JPEG."""
    return np.stack([_through_jpeg(image, quality) for image in x.astype(np.uint8)]).astype(np.float32)


def _through_jpeg(image: npt.NDArray[np.uint8], quality: int) -> npt.NDArray[np.uint8]:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    with Image.open(file) as picture:
        return np.asarray(picture)
