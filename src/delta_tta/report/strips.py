"""Streams as coloured bars, drawn with matplotlib."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .looks import INK, class_colours, legend_below
from .shown import Strips

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


def draw_strips(strips: Strips) -> Canvas:
    """Return the strips one below the other, and which colour is which class."""
    from matplotlib.figure import Figure as Canvas
    from matplotlib.patches import Patch

    longest = max((len(strip.classes) for strip in strips.strips), default=0)
    if not longest:
        raise InputError(f"The strips {strips.id!r} hold no samples; nothing can be drawn.")
    kinds = len(strips.names)
    colours = class_colours(kinds)
    few = kinds <= 20
    count = len(strips.strips)
    heights = [1.0] * count + ([] if few else [0.35])
    abreast = max(1, 96 // (max(map(len, strips.names), default=0) + 5))
    below = 0.2 * -(-kinds // abreast) if few else 0.3
    canvas = Canvas(figsize=(9.6, 0.68 * sum(heights) + 1.0 + below), layout="constrained")
    grid = canvas.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, strip in zip(grid, strips.strips, strict=False):
        classes = np.asarray(strip.classes, dtype=np.int64)
        if len(classes) and not 0 <= classes.min() <= classes.max() < kinds:
            raise InputError(f"The strip {strip.label!r} has a class for which there is no name among the {kinds}.")
        _strip(axes, strip.label, colours[classes], longest)
    _arrow(grid[0], longest)
    if few:
        handles = [Patch(color=tuple(c), label=name) for c, name in zip(colours, strips.names, strict=True)]
        legend_below(canvas, handles, abreast, handlelength=1.0)
    else:
        _strip(grid[-1], f"{kinds} classes", colours, kinds)
        grid[-1].set_xticks([-0.5, kinds - 0.5], [strips.names[0], strips.names[-1]], fontsize=9)
        for name, side in zip(grid[-1].get_xticklabels(), ("left", "right"), strict=True):
            name.set_horizontalalignment(side)
    canvas.suptitle(textwrap.fill(strips.title, 88), fontsize=12, fontweight="bold")
    return canvas


def _strip(axes: Axes, label: str, colours: npt.NDArray[np.float64], longest: int) -> None:
    count = len(colours)
    if count:
        axes.imshow(colours[None], aspect="auto", interpolation="none", extent=(-0.5, count - 0.5, 0, 1))
    if longest <= 160:  # then there is room for a gap between two of the same class
        axes.vlines(np.arange(1, count) - 0.5, 0, 1, color="white", lw=0.8)
    axes.set(xlim=(-0.5, longest - 0.5), ylim=(0, 1), xticks=[])
    axes.set_yticks([0.5], [textwrap.fill(label, 24)])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _arrow(axes: Axes, samples: int) -> None:
    """Draw the arrow of time above the first strip, its name in line with those of the strips."""
    style = {"arrowstyle": "-|>", "color": INK, "lw": 1.0, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 12}
    level, frame = 1.22, "axes fraction"
    axes.annotate("", (1, level), (0, level), frame, arrowprops=style, annotation_clip=False)
    words: dict[str, Any] = {"xycoords": frame, "textcoords": "offset points", "annotation_clip": False}
    axes.annotate("time", (0, level), (-3.5, 0), ha="right", va="center", **words)
    axes.annotate(f"{samples} samples", (1, level), (0, 5), ha="right", va="bottom", fontsize=9, **words)
