"""What the command shows on a terminal, with rich: a live progress bar and coloured tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ..bench import Result
from ..bench.compare import Watch
from ..metrics import Metrics
from ..streams import StreamSpec
from .tables import arrow, best_of, change, headings, layout, short


@contextmanager
def live(console: Console, total: int) -> Iterator[Watch]:
    """Show progress over `total` samples, with the accuracy of the method that runs; give what `compare` calls."""
    bar = Progress(
        TextColumn("{task.description:<44}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=total)

        def watch(method: str, spec: StreamSpec, size: int, metrics: Metrics) -> None:
            words = f"{method} on {short(str(spec))}: {100 * metrics.accuracy:.1f} %"
            bar.update(task, advance=size, description=words)

        yield watch


def accuracy_table(results: Sequence[Result]) -> Table:
    """Return class-mean accuracies with the change against Source: green up, red down, the best of a stream bold."""
    methods, streams, cells = layout(results)
    table = Table()
    table.add_column("class-mean accuracy, %")
    for heading in headings(streams):
        table.add_column(heading, justify="right")
    for method in methods:
        row = []
        for stream in streams:
            if (method, stream) not in cells:
                row.append("")
                continue
            own = cells[method, stream].class_mean_accuracy
            text = f"[bold]{100 * own:.1f}[/]" if own == best_of(cells, stream) else f"{100 * own:.1f}"
            points = change(cells, method, stream)
            if points is not None:
                colour = "green" if points > 0 else "red"
                text += f" [{colour}]{arrow(points):>5}[/]"
            row.append(text)
        table.add_row(method, *row)
    return table
