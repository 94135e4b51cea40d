"""Exhibits of any runs, whichever experiment they come from: a table, and what happened along the streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ..experiments.cell import Cell
from ..experiments.evaluate import Result
from ..experiments.trace import Trace
from .overview import overview, row_of
from .shown import Exhibit, Figure, Panel, Series, Strip, Strips

XY = tuple[list[float], list[float]]
Run = tuple[Cell, Result]
POINTS = 200
"""Of a line: more cannot be told apart."""


def exhibits_of(runs: Sequence[Run], trace: Callable[[Cell], Trace | None], names: Sequence[str] = ()) -> list[Exhibit]:
    """Return tables of all runs, then figures of those on the first corruption with the first seed.

    Of a method that ran with several settings the figures show the first.

    Args:
        runs: cells and their results.
        trace: gives the trace of a cell.
        names: of the classes.
    """
    if not runs:
        return []
    first = runs[0][0]

    def alike(cell: Cell) -> tuple[object, ...]:
        return cell.place, cell.corruptions, cell.severity, cell.batch_size, cell.stream.seed

    chosen: dict[str, Cell] = {}
    cells = [cell for cell, _ in runs if alike(cell) == alike(first)]
    cells = [cell for cell in cells if chosen.setdefault(cell.method, cell).settings == cell.settings]
    traces = {(cell.stream, row_of(cell)): own for cell in cells if (own := trace(cell)) is not None}
    streams = list(dict.fromkeys(stream for stream, _ in traces))
    methods = list(dict.fromkeys(method for _, method in traces))

    def panels(x_label: str, y_label: str, of: Callable[[Trace], XY]) -> tuple[Panel, ...]:
        made = []
        for stream in streams:
            lines = [(name, of(traces[stream, name])) for name in methods if (stream, name) in traces]
            series = tuple(Series(name, tuple(x), tuple(y)) for name, (x, y) in lines)
            made.append(Panel(stream.without_seed, x_label, y_label, series))
        return tuple(made)

    what = f"{', '.join(first.corruptions)}, severity {first.severity}; B = {first.batch_size}."
    found: list[Exhibit] = [*overview(runs)]
    if traces:
        along = panels("samples seen", "accuracy of the last eighth, %", accuracy_along)
        note = f"{what} Every sample counts alike here, and not every class."
        found.append(Figure("stream", "Accuracy over the stream", along, note))
        strips = [
            Strip(str(s), tuple(next(t for (o, _), t in traces.items() if o == s).labels.tolist())) for s in streams
        ]
        count = max(max(strip.classes) for strip in strips) + 1
        known = tuple(names) if len(names) >= count else tuple(str(i) for i in range(count))
        found.append(Strips("streams", "The streams", tuple(strips), known, "A bar is a sample, a colour a class."))
        counts = panels("classes, most predicted first", "predictions", predictions_per_class)
        found.append(Figure("predictions", "Predictions per class", counts, what))
    return found


def accuracy_along(trace: Trace) -> XY:
    """Return (samples seen, accuracy of the last eighth of the stream in percent)."""
    seen, line = trailing_mean(trace.correct, window_of(len(trace.labels)))
    step = max(1, len(seen) // POINTS)
    return [float(v) for v in seen[::step]], [100 * float(v) for v in line[::step]]


def window_of(samples: int) -> int:
    """Return over how many samples a line of accuracy is averaged: an eighth of the stream."""
    return max(20, samples // 8)


def trailing_mean(correct: npt.NDArray[np.bool_], window: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return (samples seen, share right among the last `window`); starts when a quarter of the window is full."""
    total = np.concatenate([[0], np.cumsum(correct)])
    seen = np.arange(max(1, window // 4), len(correct) + 1)
    start = np.maximum(seen - window, 0)
    return seen, (total[seen] - total[start]) / (seen - start)


def predictions_per_class(trace: Trace) -> XY:
    """Return how often each class was predicted, from the most to the least."""
    count = int(max(trace.labels.max(), trace.predicted.max())) + 1
    made = np.sort(np.bincount(trace.predicted, minlength=count))[::-1]
    return [float(i + 1) for i in range(count)], [float(v) for v in made]
