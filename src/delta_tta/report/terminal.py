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
from .tables import Cell, arrow, headings, layout, rows, short


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
    table = Table("class-mean accuracy, %")
    for heading in headings(layout(results)[1]):
        table.add_column(heading, justify="right")
    for method, cells in rows(results):
        table.add_row(method, *(_coloured(cell) for cell in cells))
    return table


def _coloured(cell: Cell | None) -> str:
    if cell is None:
        return ""
    text = f"[bold]{cell.percent:.1f}[/]" if cell.best else f"{cell.percent:.1f}"
    if cell.points is None:
        return text
    return f"{text} [{'green' if cell.points > 0 else 'red'}]{arrow(cell.points):>5}[/]"
