"""Results as tables: for the terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ..experiments import Result

Cells = dict[tuple[str, str], Result]


def layout(results: Sequence[Result]) -> tuple[list[str], list[str], Cells]:
    """Return (methods, streams, result by method and stream), in the order they came."""
    cells = {(result.method, result.stream): result for result in results}
    return list(dict.fromkeys(m for m, _ in cells)), list(dict.fromkeys(s for _, s in cells)), cells


def mean_over_data(results: Sequence[Result]) -> list[Result]:
    """Return one result a method and stream, its accuracies the means over the data sets it was run on."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.method, result.stream), []).append(result)
    return [
        replace(
            group[0],
            class_mean_accuracy=fmean(result.class_mean_accuracy for result in group),
            accuracy=fmean(result.accuracy for result in group),
        )
        for group in groups.values()
    ]


def change(cells: Cells, method: str, stream: str) -> float | None:
    """Return how many points of class-mean accuracy a method gains on Source, where Source was run."""
    source, own = cells.get(("source", stream)), cells.get((method, stream))
    if source is None or own is None or method == "source":
        return None
    return 100 * (own.class_mean_accuracy - source.class_mean_accuracy)


def arrow(points: float) -> str:
    """Return ▲ or ▼ and the points; = where they round to nothing."""
    return f"{'▲' if points > 0 else '▼'}{abs(points):.1f}" if abs(points) >= 0.05 else "="


def short(stream: str) -> str:
    """Return the name of a stream without its seed."""
    return stream.rpartition(", seed")[0] or stream


def headings(streams: Sequence[str]) -> list[str]:
    """Return the names of streams for the head of a table: without the seed if all have the same."""
    seeds = {stream.rpartition(", seed")[2] for stream in streams}
    return [short(stream) if len(seeds) == 1 else stream for stream in streams]


@dataclass(frozen=True)
class Cell:
    """One number of a table: percent, whether it is the best of its stream, points against Source."""

    percent: float
    best: bool
    points: float | None


def rows(results: Sequence[Result]) -> list[tuple[str, list[Cell | None]]]:
    """Return (method, its cells) in the order they came; None where a method was not run on a stream."""
    methods, streams, cells = layout(results)
    best = {s: max(r.class_mean_accuracy for (_, name), r in cells.items() if name == s) for s in streams}

    def cell(method: str, stream: str) -> Cell | None:
        if (method, stream) not in cells:
            return None
        own = cells[method, stream].class_mean_accuracy
        return Cell(100 * own, own == best[stream], change(cells, method, stream))

    return [(method, [cell(method, stream) for stream in streams]) for method in methods]


def markdown(results: Sequence[Result]) -> str:
    """Return class-mean accuracies in percent with the change against Source, the best of a stream in bold."""
    heads = headings(layout(results)[1])
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for method, cells in rows(results):
        lines.append(f"| {method} | " + " | ".join(_in_markdown(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _in_markdown(cell: Cell | None) -> str:
    if cell is None:
        return ""
    text = f"**{cell.percent:.1f}**" if cell.best else f"{cell.percent:.1f}"
    return text if cell.points is None else f"{text} {arrow(cell.points)}"
