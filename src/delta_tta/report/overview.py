"""A table of all runs in a store: methods by streams."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import replace

from ..experiments.cell import Cell
from ..experiments.evaluate import Result
from .shown import Column, Number, Row, Table


def overview(runs: Iterable[tuple[Cell, Result]]) -> tuple[Table, ...]:
    """Return a table for each place (images and model): means over corruptions, then over seeds, with the deviation."""
    places: dict[str, list[tuple[Cell, Result]]] = {}
    for cell, result in runs:
        images = f", {cell.place.images} images" if cell.place.images else ""
        where = f" at {cell.place.path}" if cell.place.path else ""
        weights = f" ({cell.place.weights})" if cell.place.weights else ""
        scale = f", mean {cell.place.mean}, std {cell.place.std}" if cell.place.mean else ""
        data = "the embedded images" if cell.place.data == "demo" else cell.place.data
        places.setdefault(f"{data}{where}{images}, {cell.place.model}{weights}{scale}", []).append((cell, result))
    return tuple(_table(number, name, cells) for number, (name, cells) in enumerate(places.items(), 1))


def against_source(table: Table) -> Table:
    """Return the table with what each number gains on Source in its column, where Source was run."""
    sources = next((row.numbers for row in table.rows if row.label == "source"), (None,) * len(table.columns))

    def gaining(number: Number | None, source: Number | None) -> Number | None:
        return number if number is None or source is None else replace(number, gain=number.mean - source.mean)

    return replace(
        table,
        rows=tuple(
            row if row.label == "source" else Row(row.label, tuple(map(gaining, row.numbers, sources)))
            for row in table.rows
        ),
    )


def _table(number: int, name: str, runs: list[tuple[Cell, Result]]) -> Table:
    values: dict[tuple[str, Column], list[tuple[int, float]]] = {}
    for cell, result in runs:
        shares = list(result.domains.values()) if cell.order == "continual" else [result.class_mean_accuracy]
        where = (row_of(cell), _column(cell, runs))
        values.setdefault(where, []).extend((cell.stream.seed, 100 * share) for share in shares)
    labels = list(dict.fromkeys(row for row, _ in values))
    columns = sorted(dict.fromkeys(column for _, column in values), key=lambda column: column.group)
    cells = {where: Number(*mean_over_seeds(found), runs=len(found)) for where, found in values.items()}
    best = {c: max(n.mean for (_, column), n in cells.items() if column == c) for c in columns}

    def final(label: str, column: Column) -> Number | None:
        own = cells.get((label, column))
        if own is None:
            return None
        return Number(own.mean, own.std, own.mean == best[column], runs=own.runs, of=own.runs)

    rows = tuple(Row(label, tuple(final(label, column) for column in columns)) for label in labels)
    what = sorted({c for cell, _ in runs for c in cell.corruptions})
    note = f"Class-mean accuracy, %; {'mean over' if len(what) > 1 else 'under'} {', '.join(what)}."
    return Table(f"overview-{number}", f"On {name}", tuple(columns), rows, note)


def mean_over_seeds(values: Iterable[tuple[int, float]]) -> tuple[float, float | None]:
    """Return the mean over corruptions, then over seeds, and the deviation over seeds; None for one seed.

    Args:
        values: of each run, its seed and its number.
    """
    by_seed: dict[int, list[float]] = {}
    for seed, value in values:
        by_seed.setdefault(seed, []).append(value)
    means = [statistics.fmean(of_seed) for of_seed in by_seed.values()]
    return statistics.fmean(means), statistics.stdev(means) if len(means) > 1 else None


def row_of(cell: Cell) -> str:
    """Return what a line of a table or figure is called that shows this cell."""
    star = " without reset" if cell.order == "continual" else ", mixed" if cell.order == "mixed" else ""
    return f"{cell.method}{star}" + (f" ({cell.in_words})" if cell.settings else "")


def _column(cell: Cell, runs: list[tuple[Cell, Result]]) -> Column:
    """Name a stream without its seed; batch size and severity only where they vary."""
    sizes, levels = ({getattr(one, name) for one, _ in runs} for name in ("batch_size", "severity"))
    words = [f"B = {cell.batch_size}"] if len(sizes) > 1 else []
    words += [f"severity {cell.severity}"] if len(levels) > 1 else []
    return Column(cell.stream.without_seed, ", ".join(words))
