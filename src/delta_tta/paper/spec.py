"""What an exhibit of the paper is made of, before anything has been run: rows, columns and series as conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..experiments.cell import Cell
from ..experiments.lab import Lab
from ..experiments.trace import Trace
from ..streams import StreamSpec
from . import numbers as paper
from .benchmarks import Benchmark

Conditions = Mapping[str, Any]
Metric = Literal["accuracy", "std", "range", "over source"]
WhyNot = Callable[[Benchmark], str]
"""Returns why an exhibit cannot be made on a benchmark; empty if it can."""


def needs_corruptions(benchmark: Benchmark) -> str:
    """Most exhibits are about corruptions."""
    if benchmark.corrupted:
        return ""
    return f"{benchmark.stands_for} has no corruptions. Take --on demo, cifar100, cifar100-c or imagenet-c."


def needs_benchmark(*names: str) -> WhyNot:
    """Return what says that an exhibit is about other data."""

    def why_not(benchmark: Benchmark) -> str:
        return "" if benchmark.name in names else f"It is about other images. Take --on {' or '.join(names)}."

    return why_not


def needs_clean_images(benchmark: Benchmark) -> str:
    """Some numbers are of clean images."""
    if not benchmark.corrupted or benchmark.has_clean:
        return needs_corruptions(benchmark)
    return "It is about clean images. Say where they are: --clean PATH."


def counterpart_on(names: tuple[str, ...], counterpart: str) -> WhyNot:
    """Return what points to the same table for other data."""

    def why_not(benchmark: Benchmark) -> str:
        if not benchmark.corrupted or benchmark.name in names:
            return needs_corruptions(benchmark)
        return f"It is about other images; on these it is {counterpart}."

    return why_not


@dataclass(frozen=True)
class RowSpec:
    """A row; `builds_on` names the row its gain is measured against."""

    label: str
    when: Conditions
    builds_on: str | None = None


Rows = tuple[RowSpec, ...] | Callable[[Benchmark], tuple[RowSpec, ...]]


@dataclass(frozen=True)
class ColumnSpec:
    """A column; `paper` is its name among the paper's numbers, `only` the benchmarks that have it (empty: all)."""

    label: str
    when: Conditions
    group: str = ""
    paper: str = ""
    metric: Metric = "accuracy"
    only: tuple[str, ...] = ()


class _Needs:
    """What must be run for an exhibit: nothing, unless its kind says under which conditions."""

    def conditions(self, benchmark: Benchmark) -> Iterator[Conditions]:
        """Yield those of every number."""
        return iter(())

    def each_cell(self, benchmark: Benchmark) -> Iterator[Cell]:
        """Yield the cells of every number, made on demand; some more than once."""
        return (cell for when in self.conditions(benchmark) for cell in benchmark.cells(when))

    def cells(self, benchmark: Benchmark) -> list[Cell]:
        """Return everything that must be run, each cell once."""
        return list(dict.fromkeys(self.each_cell(benchmark)))


@dataclass(frozen=True)
class TableSpec(_Needs):
    """A table. `data` is the data set its paper numbers are of, where it is not the one the benchmark stands for."""

    id: str
    title: str
    rows: Rows
    columns: tuple[ColumnSpec, ...]
    head: str = "Method"
    digits: int = 1
    data: str = ""
    note: str = ""
    by_corruption: bool = False
    marks_best: bool = True
    why_not: WhyNot = needs_corruptions

    def columns_on(self, benchmark: Benchmark) -> tuple[ColumnSpec, ...]:
        """Return the columns of a benchmark; one a corruption, and their mean, where the table is by corruption."""
        if self.by_corruption:
            (base,) = self.columns
            single = [
                ColumnSpec(name.replace("_", " "), {**base.when, "domain": name}) for name in benchmark.corruptions
            ]
            return (*single, ColumnSpec("mean", base.when))
        return tuple(column for column in self.columns if not column.only or benchmark.name in column.only)

    def rows_on(self, benchmark: Benchmark) -> tuple[RowSpec, ...]:
        """Return the rows of a benchmark: those for which the paper prints a number, or all where it prints none."""
        rows = self.rows(benchmark) if callable(self.rows) else self.rows
        if benchmark.name == "demo" or self.id not in paper.tables():
            return rows
        columns = [column.paper for column in self.columns_on(benchmark) if column.paper]
        data = self.data or benchmark.stands_for
        printed = [row for row in rows if any(paper.printed(self.id, data, row.label, c) for c in columns)]
        return tuple(printed) or rows

    def conditions(self, benchmark: Benchmark) -> Iterator[Conditions]:
        """Yield those of every number."""
        for column in self.columns_on(benchmark):
            for row in self.rows_on(benchmark):
                both = merged(column.when, row.when)
                yield both
                if column.metric == "over source":
                    yield merged(both, {"method": "source"})


@dataclass(frozen=True)
class SweepSpec:
    """A panel whose x-axis is what is varied: (place on the axis, its name, conditions)."""

    title: str
    x_label: str
    points: tuple[tuple[float, str, Conditions], ...]
    series: tuple[tuple[str, Conditions], ...]
    log_x: bool = False


@dataclass(frozen=True)
class TraceSpec:
    """A panel drawn from what happened along one stream: each series is a function of the trace.

    `of` returns x and y; the conditions must name one corruption and one seed.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[tuple[str, Conditions, Callable[[Trace], tuple[list[float], list[float]]]], ...]
    mark: Literal["line", "points", "bar"] = "line"


@dataclass(frozen=True)
class FigureSpec(_Needs):
    """A figure of panels; `of` makes them for a benchmark."""

    id: str
    title: str
    of: Callable[[Benchmark], tuple[SweepSpec | TraceSpec, ...]]
    note: str = ""
    why_not: WhyNot = needs_corruptions

    def conditions(self, benchmark: Benchmark) -> Iterator[Conditions]:
        """Yield those of every point."""
        for panel in self.of(benchmark):
            if isinstance(panel, SweepSpec):
                for _, when in panel.series:
                    for _, _, point in panel.points:
                        yield merged(point, when)
            else:
                for _, when, _ in panel.series:
                    yield when


@dataclass(frozen=True)
class StripsSpec(_Needs):
    """Streams to look at: their labels are in the traces of Source."""

    id: str
    title: str
    streams: tuple[tuple[str, StreamSpec], ...] = field(default=())
    note: str = ""
    why_not: WhyNot = needs_corruptions

    def streams_on(self, benchmark: Benchmark) -> Iterator[tuple[str, Cell]]:
        """Yield (label, a cell with the stream). Data with a natural order has no other stream."""
        for label, spec in self.streams:
            stream = spec if benchmark.corrupted else StreamSpec("natural")
            name = label if benchmark.corrupted else "natural order"
            when = {"method": "source", "scenario": stream, "corruptions": benchmark.corruptions[:1]}
            yield name, benchmark.cells({**when, "seeds": benchmark.seeds[:1]})[0]

    def each_cell(self, benchmark: Benchmark) -> Iterator[Cell]:
        """Yield the cells of the streams."""
        return (cell for _, cell in self.streams_on(benchmark))


@dataclass(frozen=True)
class GallerySpec(_Needs):
    """Example images; `of` yields (label, uint8 (H, W, 3))."""

    id: str
    title: str
    of: Callable[[Benchmark, Lab], Iterator[tuple[str, npt.NDArray[np.uint8]]]]
    note: str = ""
    why_not: WhyNot = needs_corruptions


ExhibitSpec = TableSpec | FigureSpec | StripsSpec | GallerySpec


def merged(first: Conditions, second: Conditions) -> dict[str, Any]:
    """Return both; settings are laid over each other."""
    settings = {**first.get("settings", {}), **second.get("settings", {})}
    return {**first, **second, **({"settings": settings} if settings else {})}
