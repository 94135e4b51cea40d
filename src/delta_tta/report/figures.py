"""Results as pictures."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..experiments import Result
from .tables import layout, short

COLOURS = ("#73767b", "#0072b2", "#d55e00", "#008a65", "#b8568c", "#a87000", "#2e8fc7", "#7d7600")
"""As on the page (`assets/page/page.css`): told apart by colour-blind eyes too (Okabe & Ito); the first is Source's."""


def accuracy_over_stream(results: Sequence[Result], path: Path, title: str) -> None:
    """Write a PNG: a panel for each stream, a line for each method, accuracy of the last eighth of the stream."""
    from matplotlib.figure import Figure

    methods, streams, cells = layout(results)
    colours = dict(zip((name for name in methods if name != "source"), itertools.cycle(COLOURS[1:]), strict=False))
    columns = min(2, len(streams))
    rows = -(-len(streams) // columns)
    figure = Figure(figsize=(5.2 * columns, 3.1 * rows + 0.9), layout="constrained")
    axes = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for panel, stream in zip(axes.flat, streams, strict=False):
        for number, method in enumerate(methods):
            if (method, stream) not in cells:
                continue
            result = cells[method, stream]
            seen, line = trailing_mean(result.trace.correct, window_of(result.samples))
            dashes = (0, (4, 1.5)) if number % 2 == 0 and number else "-"  # lines may lie on top of each other
            panel.plot(seen, 100 * line, color=colours.get(method, COLOURS[0]), ls=dashes, lw=1.6, label=method)
        panel.set_title(short(stream), fontsize=11)
        panel.set_xlim(0, max(result.samples for (_, name), result in cells.items() if name == stream))
        panel.set_ylim(0, 100)
        panel.grid(alpha=0.25)
    for panel in axes[-1]:
        panel.set_xlabel("samples seen")
    for panel in axes[:, 0]:
        panel.set_ylabel("accuracy of the last eighth, %")
    for spare in axes.flat[len(streams) :]:
        spare.remove()
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(methods), frameon=False)
    figure.suptitle(textwrap.fill(title, 55 * columns), fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def window_of(samples: int) -> int:
    """Return over how many samples a line of accuracy is averaged: an eighth of the stream."""
    return max(20, samples // 8)


def trailing_mean(correct: npt.NDArray[np.bool_], window: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return (samples seen, share right among the last `window`); starts when a quarter of the window is full."""
    total = np.concatenate([[0], np.cumsum(correct)])
    seen = np.arange(max(1, window // 4), len(correct) + 1)
    start = np.maximum(seen - window, 0)
    return seen, (total[seen] - total[start]) / (seen - start)
