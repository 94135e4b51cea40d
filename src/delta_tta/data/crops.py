"""Random views of training images: another part of an image each time, half of them mirrored."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .sets import FileSet, Images, ImageSet, read_image

SMALL = 64
"""Images of at most this side are shifted; of larger ones a part is cut out and scaled."""
DRAWS = 5
"""Random numbers that a view takes."""
AREA = (0.08, 1.0)
"""Least and greatest share of a large image (Szegedy et al. 2015)."""
RATIO = 4 / 3
"""Greatest ratio of its sides."""


def random_view(images: ImageSet, place: int, draws: Sequence[float]) -> Images:
    """Return a view of the image at this place, uint8 (H, W, 3); `draws` are `DRAWS` numbers from 0 to 1."""
    large = isinstance(images, FileSet) and images.size > SMALL
    whole = read_image(images.paths[place], None) if large else images.take([place])[0]  # type: ignore[attr-defined]
    side = images.size if isinstance(images, FileSet) else len(whole)
    view = _part(whole, side, draws) if side > SMALL else _shifted(whole, draws)
    return view[:, ::-1] if draws[4] < 0.5 else view


def _part(whole: Images, side: int, draws: Sequence[float]) -> Images:
    """Return a random part of the image, scaled to a square."""
    from PIL import Image

    height, width = whole.shape[:2]
    area = height * width * (AREA[0] + (AREA[1] - AREA[0]) * draws[0])
    ratio = RATIO ** (2 * draws[1] - 1)
    wide, high = min(math.sqrt(area * ratio), width), min(math.sqrt(area / ratio), height)
    left, top = (width - wide) * draws[2], (height - high) * draws[3]
    box = (left, top, left + wide, top + high)
    return np.asarray(Image.fromarray(whole).resize((side, side), Image.Resampling.BILINEAR, box))


def _shifted(whole: Images, draws: Sequence[float]) -> Images:
    """Return the image shifted by up to an eighth of its side, black where it does not reach."""
    height, width = whole.shape[:2]
    pad = height // 8
    padded = np.pad(whole, ((pad, pad), (pad, pad), (0, 0)))
    top, left = (int((2 * pad + 1) * draw) for draw in draws[2:4])
    return padded[top : top + height, left : left + width]
