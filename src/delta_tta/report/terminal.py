"""Results on a terminal, as a coloured table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from ..experiments import Result
from .tables import Cell, arrow, headings, layout, rows


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
