"""Colours, dashes and markers of pictures, and where their legends stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

COLOURS = ("#73767b", "#0072b2", "#d55e00", "#008a65", "#b8568c", "#a87000", "#2e8fc7", "#7d7600")
"""As on the page (`assets/page/page.css`): told apart by colour-blind eyes too (Okabe & Ito); the first is Source's."""
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKERS = "osD^vPX"
INK, PALE = "#333333", "#dddddd"


def class_colours(count: int) -> npt.NDArray[np.float64]:
    """Return an sRGB colour for each class: around the hue circle in steps that look equal, in OKLCH.

    With many classes neighbours would look alike; so they differ in lightness too.
    """
    hue = 2 * np.pi * (np.arange(count) / max(count, 1) + 0.07)
    levels = [0.72] if count <= 6 else [0.78, 0.62] if count <= 12 else [0.82, 0.54, 0.68]
    light = np.resize(levels, count)
    chroma = np.resize([0.15] if count <= 12 else [0.12, 0.16, 0.14], count)
    a, b = chroma * np.cos(hue), chroma * np.sin(hue)
    cones = np.stack(
        [
            light + 0.3963377774 * a + 0.2158037573 * b,
            light - 0.1055613458 * a - 0.0638541728 * b,
            light - 0.0894841775 * a - 1.2914855480 * b,
        ]
    )
    to_rgb = np.array(
        [
            [4.0767416621, -3.3077115913, 0.2309699292],
            [-1.2684380046, 2.6097574011, -0.3413193965],
            [-0.0041960863, -0.7034186147, 1.7076147010],
        ]
    )
    linear = np.clip(to_rgb @ cones**3, 0, 1)
    shown = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.asarray(shown.T, dtype=np.float64)


class SeriesStyle:
    """Colour, dashes and marker of each label: the same in all panels, grey for Source."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = list(dict.fromkeys(labels))
        others = [label for label in self.labels if label.casefold() != "source"]
        self.place = {label: number for number, label in enumerate(others)}

    def colour(self, label: str) -> str:
        """Return the colour of a label."""
        place = self.place.get(label)
        return COLOURS[0] if place is None else COLOURS[1 + place % (len(COLOURS) - 1)]

    def dashes(self, label: str) -> Any:
        """Return the dashes of its line."""
        return DASHES[self.place.get(label, 0) % len(DASHES)]  # 4 of them with 7 colours: 28 labels look different

    def marker(self, label: str) -> str:
        """Return the marker of its points."""
        return MARKERS[self.place.get(label, -1) % len(MARKERS)]


def legend_below(canvas: Canvas, handles: Sequence[Any], columns: int, handlelength: float) -> None:
    """Write the legend below the panels, in at most `columns` columns."""
    rows = -(-len(handles) // columns)
    columns = -(-len(handles) // rows)  # rows of the same length, and not one of them with the rest
    canvas.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, handlelength=handlelength)
