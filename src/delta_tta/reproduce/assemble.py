"""From a store to tables and figures: each number is the mean over the runs that its conditions name."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Sequence

from ..bench import paper
from ..bench.evaluate import Result
from ..bench.experiment import Cell
from ..bench.store import Store
from ..bench.trace import Trace
from ..data.cifar import CIFAR10_CLASSES
from ..report.shown import Column, Exhibit, Figure, Number, Panel, Row, Series, Strip, Strips, Table
from .ground import Ground
from .spec import ColumnSpec, Conditions, ExhibitSpec, FigureSpec, Metric, StripsSpec, SweepSpec, TableSpec, TraceSpec
from .spec import merged as both_conditions

NAN = float("nan")


class Shelf:
    """Results, found by what their cells say. Where the data lies does not matter, so a report needs only the store.

    Args:
        store: where the traces are.
        ground: what the conditions of an exhibit become cells on.
        keys: only these results; None for all in the store.
    """

    def __init__(self, store: Store, ground: Ground, keys: Collection[str] | None = None) -> None:
        self.store, self.ground = store, ground
        self._found = {signature(cell): (key, result) for key, cell, result in store.results(keys)}

    def result(self, cell: Cell) -> Result | None:
        """Return the result of a cell, if it is there."""
        return self._found.get(signature(cell), (None, None))[1]

    def trace(self, cell: Cell) -> Trace | None:
        """Return the trace of a cell, if it is there."""
        key = self._found.get(signature(cell), (None, None))[0]
        return self.store.trace(key) if key is not None else None

    def by_seed(self, when: Conditions, metric: Metric) -> tuple[list[float], int, int]:
        """Return (a value a seed: the mean over its corruptions; runs found; runs wanted)."""
        groups: dict[int, list[float]] = {}
        cells = self.ground.cells(when)
        for cell in cells:
            result = self.result(cell)
            if result is not None:
                groups.setdefault(cell.stream.seed, []).extend(_values(result, metric))
        return [statistics.fmean(values) for values in groups.values()], sum(map(len, groups.values())), _wanted(cells)

    def number(self, when: Conditions, metric: Metric) -> tuple[float, float | None, int, int] | None:
        """Return (mean, standard deviation over seeds or None, runs found, runs wanted), or None if nothing was run."""
        seeds, runs, wanted = self.by_seed(when, "accuracy" if metric == "over source" else metric)
        if not seeds:
            return None
        mean = statistics.fmean(seeds)
        if metric == "over source":
            source, _, _ = self.by_seed(both_conditions(when, {"method": "source"}), "accuracy")
            if not source:
                return None
            mean -= statistics.fmean(source)
        return mean, statistics.stdev(seeds) if len(seeds) > 1 else None, runs, wanted


def _wanted(cells: Sequence[Cell]) -> int:
    return sum(len(cell.corruptions) if cell.order == "continual" else 1 for cell in cells)


def _values(result: Result, metric: Metric) -> Iterable[float]:
    if metric == "std":
        return [result.prediction_std]
    if metric == "range":
        return [float(result.prediction_range)]
    if result.domains and result.stream.startswith("continual"):
        return [100 * value for value in result.domains.values()]
    return [100 * result.class_mean_accuracy]


def exhibit(spec: ExhibitSpec, shelf: Shelf) -> Exhibit:
    """Return the exhibit, as far as its cells have been run."""
    if isinstance(spec, TableSpec):
        return _table(spec, shelf)
    if isinstance(spec, FigureSpec):
        panels = [_sweep(p, shelf) if isinstance(p, SweepSpec) else _traced(p, shelf) for p in spec.of(shelf.ground)]
        return Figure(spec.id, _title(spec), tuple(panels), spec.note)
    return _strips(spec, shelf)


def _table(spec: TableSpec, shelf: Shelf) -> Table:
    columns, lines = spec.columns_on(shelf.ground), spec.rows_on(shelf.ground)
    data = spec.data or shelf.ground.stands_for
    numbers: dict[tuple[str, int], Number] = {}
    for place, column in enumerate(columns):
        for row in lines:
            found = shelf.number(both_conditions(column.when, row.when), column.metric)
            if found is not None:
                mean, std, runs, of = found
                printed = _printed(spec, data, row.label, column)
                numbers[row.label, place] = Number(mean, std, False, None, *printed, runs, of)
    best = {
        place: max((n.mean for (_, at), n in numbers.items() if at == place), default=NAN)
        for place, column in enumerate(columns)
        if column.metric == "accuracy"
    }
    base = {row.label: row.builds_on for row in lines}

    def final(label: str, place: int) -> Number | None:
        own = numbers.get((label, place))
        if own is None:
            return None
        before = numbers.get((base[label] or "", place))
        gain = own.mean - before.mean if before is not None else None
        is_best = len(lines) > 1 and math.isclose(own.mean, best.get(place, NAN))
        return Number(own.mean, own.std, is_best, gain, own.paper, own.paper_std, own.runs, own.of)

    rows = tuple(Row(r.label, tuple(final(r.label, place) for place in range(len(columns)))) for r in lines)
    heads = tuple(Column(column.label, column.group) for column in columns)
    note = " ".join(filter(None, [spec.note, _beside(spec, data, shelf.ground)]))
    return Table(spec.id, _title(spec), heads, rows, note, spec.head, spec.digits)


def _title(spec: ExhibitSpec) -> str:
    kind, _, number = spec.id.partition("-")
    return f"{kind.capitalize()} {number}: {spec.title}" if number else spec.title


def _printed(spec: TableSpec, data: str, row: str, column: ColumnSpec) -> tuple[float | None, float | None]:
    if spec.id not in paper.tables() or not column.paper:
        return None, None
    return paper.printed(spec.id, data, row, column.paper) or (None, None)


def _beside(spec: TableSpec, data: str, ground: Ground) -> str:
    """Say of what data the paper's numbers are, where it is not what ours are of."""
    if spec.id not in paper.tables() or spec.id == "table-1" or not any(c.paper for c in spec.columns_on(ground)):
        return ""
    if ground.name == data.lower():
        return ""
    return f"The paper's numbers are of {data}."


def _sweep(spec: SweepSpec, shelf: Shelf) -> Panel:
    series = []
    for label, when in spec.series:
        points = []
        for x, _, point in spec.points:
            found = shelf.number(both_conditions(point, when), "accuracy")
            if found is not None:
                points.append((x, found[0]))
        series.append(Series(label, tuple(x for x, _ in points), tuple(y for _, y in points)))
    ticks = tuple((x, name) for x, name, _ in spec.points)
    return Panel(spec.title, spec.x_label, "class-mean accuracy, %", tuple(series), "points", spec.log_x, ticks)


def _traced(spec: TraceSpec, shelf: Shelf) -> Panel:
    series = []
    for label, when, of in spec.series:
        (cell,) = shelf.ground.cells(when)
        trace = shelf.trace(cell)
        if trace is not None:
            x, y = of(trace)
            series.append(Series(label, tuple(x), tuple(y)))
    return Panel(spec.title, spec.x_label, spec.y_label, tuple(series), spec.mark)


def _strips(spec: StripsSpec, shelf: Shelf) -> Strips:
    made = []
    for label, cell in spec.streams_on(shelf.ground):
        trace = shelf.trace(cell)
        if trace is not None:
            made.append(Strip(label, tuple(trace.labels.tolist())))
    count = max((max(strip.classes) for strip in made), default=0) + 1
    names = CIFAR10_CLASSES if shelf.ground.name == "demo" else tuple(str(i) for i in range(count))
    return Strips(spec.id, _title(spec), tuple(made), names, spec.note)


def signature(cell: Cell) -> tuple[object, ...]:
    """Return what a cell says, with its settings spelled out and without the places of files."""
    place = (cell.place.data, cell.place.model, cell.place.images)
    streams = (cell.stream, cell.corruptions, cell.order, cell.severity, cell.batch_size, cell.statistics)
    return (*place, cell.method, *streams, cell.spelled_out)
