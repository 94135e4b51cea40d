"""Pictures of frost: the photographs of `imagecorruptions-imaug` where that is installed, else a generated texture."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import cv2
import numpy as np

from ..errors import InputError
from .pixels import Floats

PHOTOGRAPHS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg", "frost6.jpg")
TEXTURE_SIDE = 512
LEVELS = (90, 120, 140, 150, 190, 205)
"""Brightness of our textures: from clear to white ice, on average that of the photographs."""


@functools.cache
def folder() -> Path | None:
    """Return where the photographs are, if anywhere."""
    # The package itself is not imported: only its pictures are wanted, not numba.
    spec = importlib.util.find_spec("imagecorruptions")
    place = Path(spec.origin).parent / "frost" if spec and spec.origin else None
    return place if place and all((place / name).is_file() for name in PHOTOGRAPHS) else None


@functools.cache
def _originals() -> tuple[Floats, ...]:
    place = folder()
    if place is None:
        return tuple(ice(seed) for seed in range(len(LEVELS)))
    return tuple(_photograph(place / name) for name in PHOTOGRAPHS)


def _photograph(path: Path) -> Floats:
    picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if picture is None:
        raise InputError(f"Cannot read the picture of frost {path}; reinstall imagecorruptions-imaug.")
    return picture[..., ::-1].astype(np.float32)  # OpenCV reads BGR


@functools.lru_cache(maxsize=8)
def pictures(scale: float, height: int, width: int) -> tuple[Floats, ...]:
    """Return the pictures, float (H, W, 3) in 0 to 255, scaled, and enlarged further where smaller than the image."""
    scaled = []
    for picture in _originals():
        rows, columns = picture.shape[:2]
        factor = max(scale, height / rows, width / columns)
        if factor != 1:
            size = (max(round(columns * factor), width), max(round(rows * factor), height))
            picture = np.clip(cv2.resize(picture, size, interpolation=cv2.INTER_CUBIC), 0, 255)
        scaled.append(picture)
    return tuple(scaled)


def ice(seed: int) -> Floats:
    """Return a square of frost made from noise: needles of ice on a cold, uneven pane.

    Needles are ridges (where smooth noise crosses zero), drawn along three directions 60° apart as crystals grow, at
    several scales; the pane is blurred noise.
    """
    draw = np.random.default_rng(seed)
    side = TEXTURE_SIDE
    total = np.zeros((side, side), np.float32)
    turn = draw.uniform(0, 60)
    for octave, length in enumerate((48, 24, 12, 6)):
        for direction in (0, 60, 120):
            noise = draw.standard_normal((side, side)).astype(np.float32)
            smooth = _along(noise, length, direction + turn)
            ridges = np.exp(-np.abs(smooth) / (0.15 * smooth.std()))
            total += ridges / (1 + 0.5 * octave)
    pane = cv2.GaussianBlur(draw.standard_normal((side, side)).astype(np.float32), (0, 0), side / 10)
    total = total / total.std() + 1.5 * pane / pane.std()
    total = (total - total.mean()) / total.std()
    tint = np.array([0.88, 1.02, 1.10], np.float32)  # cold: less red, more blue
    return np.clip((LEVELS[seed] + 32 * total)[..., None] * tint, 0, 255)


def _along(noise: Floats, length: int, angle: float) -> Floats:
    """Return noise smoothed much along `angle` and little across."""
    reach = 2 * length
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    turn = np.deg2rad(angle)
    along, across = x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)
    kernel = np.exp(-0.5 * ((along / length) ** 2 + (across / (0.12 * length)) ** 2)).astype(np.float32)
    return cv2.filter2D(noise, -1, kernel / np.sqrt((kernel**2).sum()), borderType=cv2.BORDER_REFLECT)
