"""From a store to tables and figures: each number is the mean over the runs that its conditions name."""

from __future__ import annotations

import base64
import copy
import io
import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ..data.cifar import CIFAR10_CLASSES
from ..experiments.cell import Cell
from ..experiments.evaluate import Result
from ..experiments.lab import Lab
from ..experiments.store import Store
from ..experiments.trace import Trace
from ..report.overview import mean_over_seeds
from ..report.shown import (
    Column,
    Exhibit,
    Figure,
    Gallery,
    Number,
    Panel,
    Picture,
    Row,
    Series,
    Strip,
    Strips,
    Table,
)
from . import numbers as paper
from .benchmarks import Benchmark
from .spec import (
    ColumnSpec,
    Conditions,
    ExhibitSpec,
    FigureSpec,
    GallerySpec,
    Metric,
    StripsSpec,
    SweepSpec,
    TableSpec,
    TraceSpec,
)
from .spec import merged as both_conditions

NAN = float("nan")


class ResultIndex:
    """Results, found by cell.

    Args:
        store: where results and traces are.
        benchmark: what the conditions of an exhibit become cells on.
        keys: of the cells. Without them results are found by what their cells say, wherever the data lies: so a page
            needs only the store.
        lab: where example images come from; without it there are none.
    """

    def __init__(
        self, store: Store, benchmark: Benchmark, keys: Mapping[Cell, str] | None = None, lab: Lab | None = None
    ) -> None:
        self.store, self.benchmark, self.lab, self._keys = store, benchmark, lab, keys
        wanted = None if keys is None else set(keys.values())
        found = list(store.results(wanted))
        self._results = {key: result for key, _, result in found}
        self._said = {} if keys is not None else {signature(cell): key for key, cell, _ in found}

    def key(self, cell: Cell) -> str | None:
        """Return the key of a cell that was run."""
        key = self._said.get(signature(cell)) if self._keys is None else self._keys.get(cell)
        return key if key in self._results else None

    def result(self, cell: Cell) -> Result | None:
        """Return the result of a cell, if it is there."""
        key = self.key(cell)
        return None if key is None else self._results[key]

    def on(self, benchmark: Benchmark) -> ResultIndex:
        """Return the same results for another benchmark; the store is not read again."""
        other = copy.copy(self)
        other.benchmark = benchmark
        return other

    def holds(self, spec: ExhibitSpec) -> bool:
        """Whether there is something to run for an exhibit and all of it was; ends at the first cell that was not."""
        found = False
        for cell in spec.each_cell(self.benchmark):
            if self.result(cell) is None:
                return False
            found = True
        return found

    def trace(self, cell: Cell) -> Trace | None:
        """Return the trace of a cell, if it is there."""
        key = self.key(cell)
        return None if key is None else self.store.trace(key)

    def values(self, when: Conditions, metric: Metric = "accuracy") -> tuple[Values, int]:
        """Return the number of each seed and corruption that was run, and how many there should be."""
        found: Values = {}
        wanted = 0
        for cell in self.benchmark.cells(when):
            domains = [name for name in cell.corruptions if when.get("domain", name) == name]
            parts = domains if cell.order == "continual" else ["+".join(cell.corruptions)]
            wanted += len(parts)
            result = self.result(cell)
            if result is not None:
                found |= {(cell.stream.seed, part): _value(result, metric, part) for part in parts}
        return found, wanted


Values = dict[tuple[int, str], float]


def _value(result: Result, metric: Metric, part: str) -> float:
    if metric == "std":
        return result.prediction_std
    if metric == "range":
        return float(result.prediction_range)
    return 100 * result.domains.get(part, result.class_mean_accuracy)


def _mean(values: Values) -> tuple[float, float | None]:
    return mean_over_seeds((seed, value) for (seed, _), value in values.items())


def _minus(values: Values, others: Values) -> Values:
    """Return the differences, run by run, where both were run."""
    return {where: value - others[where] for where, value in values.items() if where in others}


def exhibit(spec: ExhibitSpec, index: ResultIndex) -> Exhibit:
    """Return the exhibit, as far as its cells have been run."""
    if isinstance(spec, TableSpec):
        return _table(spec, index)
    if isinstance(spec, FigureSpec):
        panels = [_sweep(p, index) if isinstance(p, SweepSpec) else _traced(p, index) for p in spec.of(index.benchmark)]
        return Figure(spec.id, _title(spec), tuple(panels), spec.note)
    return _strips(spec, index) if isinstance(spec, StripsSpec) else _gallery(spec, index)


def _table(spec: TableSpec, index: ResultIndex) -> Table:
    columns = spec.columns_on(index.benchmark)
    lines = [row for row in spec.rows_on(index.benchmark) if not index.benchmark.leaves_out(row.when)]
    data = spec.data or index.benchmark.stands_for
    labels = {row.label for row in lines}
    base = {row.label: row.builds_on if row.builds_on in labels else None for row in lines}
    rows: dict[str, list[Number | None]] = {row.label: [] for row in lines}
    for column in columns:
        found: dict[str, tuple[Values, int]] = {}
        for row in lines:
            when = both_conditions(column.when, row.when)
            values, wanted = index.values(when, column.metric)
            if column.metric == "over source":
                values = _minus(values, index.values(both_conditions(when, {"method": "source"}))[0])
            found[row.label] = values, wanted
        means = {label: _mean(values) for label, (values, _) in found.items() if values}
        best = max((mean for mean, _ in means.values()), default=NAN)
        for label, (values, wanted) in found.items():
            if label not in means:
                rows[label].append(None)
                continue
            mean, std = means[label]
            gains = _minus(values, found[base[label] or label][0]) if base[label] else {}
            marked = spec.marks_best and column.metric == "accuracy" and len(lines) > 1 and math.isclose(mean, best)
            gain = _mean(gains)[0] if gains else None
            runs = min(len(values), len(gains)) if gains else len(values)
            rows[label].append(Number(mean, std, marked, gain, *_printed(spec, data, label, column), runs, wanted))
    heads = tuple(Column(column.label, column.group) for column in columns)
    note = " ".join(filter(None, [spec.note, _beside(spec, data, index.benchmark)]))
    numbers = tuple(Row(label, tuple(own)) for label, own in rows.items())
    return Table(spec.id, _title(spec), heads, numbers, note, spec.head, spec.digits)


def _title(spec: ExhibitSpec) -> str:
    kind, _, number = spec.id.partition("-")
    return f"{kind.capitalize()} {number}: {spec.title}" if number else spec.title


def _printed(spec: TableSpec, data: str, row: str, column: ColumnSpec) -> tuple[float | None, float | None]:
    if spec.id not in paper.tables() or not column.paper:
        return None, None
    return paper.printed(spec.id, data, row, column.paper) or (None, None)


def _beside(spec: TableSpec, data: str, benchmark: Benchmark) -> str:
    """Say of what data the paper's numbers are, where it is other data than here."""
    if spec.id not in paper.tables() or spec.id == "table-1" or not any(c.paper for c in spec.columns_on(benchmark)):
        return ""
    if benchmark.name == data.lower():
        return ""
    return f"The paper's numbers are of {data}."


def _sweep(spec: SweepSpec, index: ResultIndex) -> Panel:
    series = []
    for label, when in spec.series:
        points = []
        for x, _, point in spec.points:
            found, _ = index.values(both_conditions(point, when))
            if found:
                points.append((x, _mean(found)[0]))
        series.append(Series(label, tuple(x for x, _ in points), tuple(y for _, y in points)))
    ticks = tuple((x, name) for x, name, _ in spec.points)
    return Panel(spec.title, spec.x_label, "class-mean accuracy, %", tuple(series), "points", spec.log_x, ticks)


def _traced(spec: TraceSpec, index: ResultIndex) -> Panel:
    series = []
    for label, when, of in spec.series:
        for cell in index.benchmark.cells(when):
            trace = index.trace(cell)
            if trace is not None:
                x, y = of(trace)
                series.append(Series(label, tuple(x), tuple(y)))
    return Panel(spec.title, spec.x_label, spec.y_label, tuple(series), spec.mark)


def _strips(spec: StripsSpec, index: ResultIndex) -> Strips:
    made = []
    for label, cell in spec.streams_on(index.benchmark):
        trace = index.trace(cell)
        if trace is not None:
            made.append(Strip(label, tuple(trace.labels.tolist())))
    count = max((max(strip.classes) for strip in made), default=0) + 1
    names = CIFAR10_CLASSES if index.benchmark.name == "demo" else tuple(str(i) for i in range(count))
    return Strips(spec.id, _title(spec), tuple(made), names, spec.note)


def _gallery(spec: GallerySpec, index: ResultIndex) -> Gallery:
    pictures = (
        []
        if index.lab is None
        else [Picture(label, _png(image)) for label, image in spec.of(index.benchmark, index.lab)]
    )
    return Gallery(spec.id, _title(spec), tuple(pictures), spec.note)


def _png(image: npt.NDArray[np.uint8]) -> str:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def signature(cell: Cell) -> tuple[object, ...]:
    """Return what a cell says, with its settings spelled out and without the places of files."""
    place = (cell.place.data, cell.place.model, cell.place.images)
    streams = (cell.stream, cell.corruptions, cell.order, cell.severity, cell.batch_size, cell.statistics, cell.samples)
    return (*place, cell.method, *streams, cell.spelled_out)
