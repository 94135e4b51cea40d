"""Figures of panels, drawn with matplotlib: lines, points and bars."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from .looks import PALE, SeriesStyle, legend_below
from .shown import Figure, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


def draw_figure(figure: Figure) -> Canvas:
    """Return the panels side by side, up to four in a row, with one legend for all."""
    from matplotlib.figure import Figure as Canvas

    if not figure.panels:
        raise InputError(f"The figure {figure.id!r} has no panels; nothing can be drawn.")
    count = len(figure.panels)
    rows = -(-count // 4)
    columns = -(-count // rows)
    width = 6.4 if columns == 1 else 3.6 * columns
    style = SeriesStyle([series.label for panel in figure.panels for series in panel.series])
    one_y = len({panel.y_label for panel in figure.panels}) == 1
    sweeps = any(panel.mark == "points" for panel in figure.panels)  # what is small in them would be lost
    canvas = Canvas(figsize=(width, 3.0 * rows + 0.8), layout="constrained")
    grid = canvas.subplots(rows, columns, sharey=one_y and not sweeps, squeeze=False)
    for number, (axes, panel) in enumerate(zip(grid.flat, figure.panels, strict=False)):
        _panel(axes, panel, style)
        axes.set_title(textwrap.fill(panel.title, int(9.6 * width / columns)))
        if one_y and number % columns:
            axes.set_ylabel("")
    for spare in grid.flat[count:]:
        spare.remove()
    if any(style.labels):
        _legend(canvas, figure, style, int(width / 1.45))
    canvas.suptitle(textwrap.fill(figure.title, int(9.2 * width)), fontsize=12, fontweight="bold")
    return canvas


def _panel(axes: Axes, panel: Panel, style: SeriesStyle) -> None:
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    axes.grid(axis="both" if panel.mark == "line" else "y", color=PALE, lw=0.6)
    if panel.log_x:
        axes.set_xscale("log")
    if panel.mark == "bar":
        _bars(axes, panel, style)
    else:
        for series in panel.series:
            axes.plot(series.x, series.y, **_line(panel, series.label, style))
        axes.margins(x=0.02 if panel.mark == "line" else 0.06)
    _ticks(axes, panel)


def _line(panel: Panel, label: str, style: SeriesStyle) -> dict[str, Any]:
    line: dict[str, Any] = {"color": style.colour(label), "ls": style.dashes(label), "lw": 1.7}
    if panel.mark == "points":
        line |= {"marker": style.marker(label), "ms": 5.5, "mec": "white", "mew": 0.7}
    return line


def _bars(axes: Axes, panel: Panel, style: SeriesStyle) -> None:
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
        axes.bar(left, series.y, right - left, align="edge", color=style.colour(series.label), lw=0)
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


def _legend(canvas: Canvas, figure: Figure, style: SeriesStyle, columns: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Line2D | Patch] = []
    for label in filter(None, style.labels):
        panel = next(p for p in figure.panels if any(series.label == label for series in p.series))
        if panel.mark == "bar":
            handles.append(Patch(color=style.colour(label), label=label))
        else:
            handles.append(Line2D([], [], label=label, **_line(panel, label, style)))
    bars = all(panel.mark == "bar" for panel in figure.panels)
    legend_below(canvas, handles, columns, handlelength=1.0 if bars else 2.6)
