"""Figures, strips and galleries as PNG or SVG; the same values give the same bytes."""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .figures import COLOURS
from .shown import Figure, Gallery, Panel, Strips

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

DPI = 150
FORMATS: dict[str, dict[str, str | None]] = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}}
"""What can be written, and what matplotlib shall not write into it: with it no two runs would be the same."""

DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKERS = "osD^vPX"
INK, PALE = "#333333", "#dddddd"
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "delta-tta",
    "text.parse_math": False,  # a $ in a name is a $
    "figure.constrained_layout.w_pad": 0.08,
    "figure.constrained_layout.h_pad": 0.07,
    "font.size": 10.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#999999",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "axes.titlepad": 8,
    "xtick.color": "#999999",
    "ytick.color": "#999999",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}


def draw(exhibit: Figure | Strips | Gallery, path: Path) -> None:
    """Write a figure, strips or a gallery as the path's suffix says, .png or .svg; without its note."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"A picture is written as {' or '.join(FORMATS)}, and {path.name!r} is neither.")
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user has set for other pictures
        matplotlib.rcParams.update(STYLE)
        if isinstance(exhibit, Figure):
            canvas = _figure(exhibit)
        else:
            canvas = _strips(exhibit) if isinstance(exhibit, Strips) else _gallery(exhibit)
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(path, dpi=DPI, format=suffix[1:], metadata=FORMATS[suffix])


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


class _Look:
    """Colour, dashes and marker of each label: the same in all panels, grey for Source."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = list(dict.fromkeys(labels))
        others = [label for label in self.labels if label.casefold() != "source"]
        self.place = {label: number for number, label in enumerate(others)}

    def colour(self, label: str) -> str:
        place = self.place.get(label)
        return COLOURS[0] if place is None else COLOURS[1 + place % (len(COLOURS) - 1)]

    def dashes(self, label: str) -> Any:
        return DASHES[self.place.get(label, 0) % len(DASHES)]  # 4 of them with 7 colours: 28 labels look different

    def marker(self, label: str) -> str:
        return MARKERS[self.place.get(label, -1) % len(MARKERS)]


def _figure(figure: Figure) -> Canvas:
    from matplotlib.figure import Figure as Canvas

    if not figure.panels:
        raise InputError(f"The figure {figure.id!r} has no panels; nothing can be drawn.")
    count = len(figure.panels)
    rows = -(-count // 4)
    columns = -(-count // rows)
    width = 6.4 if columns == 1 else 3.6 * columns
    look = _Look([series.label for panel in figure.panels for series in panel.series])
    one_y = len({panel.y_label for panel in figure.panels}) == 1
    sweeps = any(panel.mark == "points" for panel in figure.panels)  # what is small in them would be lost
    canvas = Canvas(figsize=(width, 3.0 * rows + 0.8), layout="constrained")
    grid = canvas.subplots(rows, columns, sharey=one_y and not sweeps, squeeze=False)
    for number, (axes, panel) in enumerate(zip(grid.flat, figure.panels, strict=False)):
        _panel(axes, panel, look)
        axes.set_title(textwrap.fill(panel.title, int(9.6 * width / columns)))
        if one_y and number % columns:
            axes.set_ylabel("")
    for spare in grid.flat[count:]:
        spare.remove()
    if any(look.labels):
        _legend(canvas, figure, look, int(width / 1.45))
    canvas.suptitle(textwrap.fill(figure.title, int(9.2 * width)), fontsize=12, fontweight="bold")
    return canvas


def _panel(axes: Axes, panel: Panel, look: _Look) -> None:
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    axes.grid(axis="both" if panel.mark == "line" else "y", color=PALE, lw=0.6)
    if panel.log_x:
        axes.set_xscale("log")
    if panel.mark == "bar":
        _bars(axes, panel, look)
    else:
        for series in panel.series:
            axes.plot(series.x, series.y, **_line(panel, series.label, look))
        axes.margins(x=0.02 if panel.mark == "line" else 0.06)
    _ticks(axes, panel)


def _line(panel: Panel, label: str, look: _Look) -> dict[str, Any]:
    style: dict[str, Any] = {"color": look.colour(label), "ls": look.dashes(label), "lw": 1.7}
    if panel.mark == "points":
        style |= {"marker": look.marker(label), "ms": 5.5, "mec": "white", "mew": 0.7}
    return style


def _bars(axes: Axes, panel: Panel, look: _Look) -> None:
    """Draw the series beside each other at each x; on a logarithmic axis they are as wide as they look elsewhere."""
    flat = np.log10 if panel.log_x else np.asarray
    places = np.unique(np.concatenate([flat(series.x) for series in panel.series])) if panel.series else np.zeros(0)
    room = 0.82 * (np.diff(places).min() if len(places) > 1 else 1.0)
    width = room / max(len(panel.series), 1)
    gap = 0.06 * width if len(panel.series) > 1 and len(places) <= 12 else 0.0
    for number, series in enumerate(panel.series):
        left = flat(series.x) - room / 2 + number * width + gap
        right = left + width - 2 * gap
        if panel.log_x:
            left, right = 10**left, 10**right
        axes.bar(left, series.y, right - left, align="edge", color=look.colour(series.label), lw=0)
    axes.margins(x=0.02)


def _ticks(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, NullLocator

    ticks = panel.ticks
    if not ticks and panel.mark == "bar" and not panel.log_x:
        places = sorted({x for series in panel.series for x in series.x})
        if len(places) <= 12:
            ticks = tuple((x, f"{x:g}") for x in places)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    if panel.log_x:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))  # 10⁻² would need the math switched off
        axes.xaxis.set_minor_formatter(NullFormatter())
    if ticks:
        axes.set_xticks([place for place, _ in ticks], [name for _, name in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
        if sum(len(name) + 2 for _, name in ticks) > 46:  # beside each other they would overlap
            axes.tick_params(axis="x", labelrotation=40)
            for name in axes.get_xticklabels():
                name.set(horizontalalignment="right", rotation_mode="anchor")


def _legend(canvas: Canvas, figure: Figure, look: _Look, columns: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Line2D | Patch] = []
    for label in filter(None, look.labels):
        panel = next(p for p in figure.panels if any(series.label == label for series in p.series))
        if panel.mark == "bar":
            handles.append(Patch(color=look.colour(label), label=label))
        else:
            handles.append(Line2D([], [], label=label, **_line(panel, label, look)))
    bars = all(panel.mark == "bar" for panel in figure.panels)
    _below(canvas, handles, columns, handlelength=1.0 if bars else 2.6)


def _below(canvas: Canvas, handles: Sequence[Any], columns: int, handlelength: float) -> None:
    rows = -(-len(handles) // columns)
    columns = -(-len(handles) // rows)  # rows of the same length, and not one of them with the rest
    canvas.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, handlelength=handlelength)


def _gallery(gallery: Gallery) -> Canvas:
    from matplotlib.figure import Figure as Canvas
    from matplotlib.image import imread

    columns = min(5, len(gallery.pictures))
    rows = -(-len(gallery.pictures) // columns)
    canvas = Canvas(figsize=(1.9 * columns, 2.2 * rows + 0.6), layout="constrained")
    grid = canvas.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, picture in zip(grid.flat, gallery.pictures, strict=False):
        axes.imshow(imread(io.BytesIO(base64.b64decode(picture.png))), interpolation="nearest")
        axes.set_title(picture.label, fontsize=10)
    canvas.suptitle(textwrap.fill(gallery.title, 17 * columns), fontsize=12, fontweight="bold")
    return canvas


def _strips(strips: Strips) -> Canvas:
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
        _below(canvas, handles, abreast, handlelength=1.0)
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
