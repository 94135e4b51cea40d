"""What an exhibit of the paper is made of, before anything has been run: rows, columns and series as conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..bench import paper
from ..bench.experiment import Cell
from ..bench.lab import Lab
from ..bench.trace import Trace
from ..streams import StreamSpec
from .ground import Ground

Conditions = Mapping[str, Any]
Metric = Literal["accuracy", "std", "range", "over source"]
WhyNot = Callable[[Ground], str]
"""Says in a sentence why an exhibit cannot be had on a ground; nothing where it can."""


def needs_corruptions(ground: Ground) -> str:
    """Most exhibits are about corruptions."""
    if ground.corrupted:
        return ""
    return f"{ground.stands_for} has no corruptions. Take --on demo, cifar100, cifar100-c or imagenet-c."


def needs_ground(*names: str) -> WhyNot:
    """Return what says that an exhibit is about other data."""

    def why_not(ground: Ground) -> str:
        return "" if ground.name in names else f"It is about other images. Take --on {' or '.join(names)}."

    return why_not


def needs_clean_images(ground: Ground) -> str:
    """Some numbers are of clean images."""
    if not ground.corrupted or ground.has_clean:
        return needs_corruptions(ground)
    return "It is about clean images. Say where they are: --clean PATH."


def twin_on(names: tuple[str, ...], twin: str) -> WhyNot:
    """Return what points to the same table for other data."""

    def why_not(ground: Ground) -> str:
        if not ground.corrupted or ground.name in names:
            return needs_corruptions(ground)
        return f"It is about other images; on these it is {twin}."

    return why_not


@dataclass(frozen=True)
class RowSpec:
    """A row; `builds_on` names the row its gain is measured against."""

    label: str
    when: Conditions
    builds_on: str | None = None


Rows = tuple[RowSpec, ...] | Callable[[Ground], tuple[RowSpec, ...]]


@dataclass(frozen=True)
class ColumnSpec:
    """A column; `paper` is its name among the paper's numbers, `only` the grounds that have it (empty: all)."""

    label: str
    when: Conditions
    group: str = ""
    paper: str = ""
    metric: Metric = "accuracy"
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableSpec:
    """A table. `data` is the data set its paper numbers are of, where it is not the one the ground stands for."""

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

    def columns_on(self, ground: Ground) -> tuple[ColumnSpec, ...]:
        """Return the columns a ground has; one a corruption, and their mean, where the table is by corruption."""
        if self.by_corruption:
            (base,) = self.columns
            single = [ColumnSpec(name.replace("_", " "), {**base.when, "domain": name}) for name in ground.corruptions]
            return (*single, ColumnSpec("mean", base.when))
        return tuple(column for column in self.columns if not column.only or ground.name in column.only)

    def rows_on(self, ground: Ground) -> tuple[RowSpec, ...]:
        """Return the rows a ground has: those for which the paper prints a number, or all where it prints none."""
        rows = self.rows(ground) if callable(self.rows) else self.rows
        if ground.name == "demo" or self.id not in paper.tables():
            return rows
        columns = [column.paper for column in self.columns_on(ground) if column.paper]
        data = self.data or ground.stands_for
        printed = [row for row in rows if any(paper.printed(self.id, data, row.label, c) for c in columns)]
        return tuple(printed) or rows

    def conditions(self, ground: Ground) -> Iterator[Conditions]:
        """Yield those of every number."""
        for column in self.columns_on(ground):
            for row in self.rows_on(ground):
                both = merged(column.when, row.when)
                yield both
                if column.metric == "over source":
                    yield merged(both, {"method": "source"})

    def cells(self, ground: Ground) -> list[Cell]:
        """Return everything that must be run."""
        return unique(ground, self.conditions(ground))


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
class FigureSpec:
    """A figure of panels; `of` makes them for a ground."""

    id: str
    title: str
    of: Callable[[Ground], tuple[SweepSpec | TraceSpec, ...]]
    note: str = ""
    why_not: WhyNot = needs_corruptions

    def conditions(self, ground: Ground) -> Iterator[Conditions]:
        """Yield those of every point."""
        for panel in self.of(ground):
            if isinstance(panel, SweepSpec):
                for _, when in panel.series:
                    for _, _, point in panel.points:
                        yield merged(point, when)
            else:
                for _, when, _ in panel.series:
                    yield when

    def cells(self, ground: Ground) -> list[Cell]:
        """Return everything that must be run."""
        return unique(ground, self.conditions(ground))


@dataclass(frozen=True)
class StripsSpec:
    """Streams to look at: their labels are in the traces of Source."""

    id: str
    title: str
    streams: tuple[tuple[str, StreamSpec], ...] = field(default=())
    note: str = ""
    why_not: WhyNot = needs_corruptions

    def streams_on(self, ground: Ground) -> Iterator[tuple[str, Cell]]:
        """Yield (label, a cell that meets the stream); data that has an order of its own has no other."""
        for label, spec in self.streams:
            stream = spec if ground.corrupted else StreamSpec("natural")
            name = label if ground.corrupted else "natural order"
            when = {"method": "source", "scenario": stream, "corruptions": ground.corruptions[:1]}
            yield name, ground.cells({**when, "seeds": ground.seeds[:1]})[0]

    def cells(self, ground: Ground) -> list[Cell]:
        """Return everything that must be run."""
        return list(dict.fromkeys(cell for _, cell in self.streams_on(ground)))


@dataclass(frozen=True)
class GallerySpec:
    """Example images; `of` yields (label, uint8 (H, W, 3))."""

    id: str
    title: str
    of: Callable[[Ground, Lab], Iterator[tuple[str, npt.NDArray[np.uint8]]]]
    note: str = ""
    why_not: WhyNot = needs_corruptions

    def cells(self, ground: Ground) -> list[Cell]:
        """Nothing must be run."""
        return []


ExhibitSpec = TableSpec | FigureSpec | StripsSpec | GallerySpec


def merged(first: Conditions, second: Conditions) -> dict[str, Any]:
    """Return both; settings are laid over each other."""
    settings = {**first.get("settings", {}), **second.get("settings", {})}
    return {**first, **second, **({"settings": settings} if settings else {})}


def unique(ground: Ground, conditions: Iterator[Conditions]) -> list[Cell]:
    """Return the cells of all of them, each once."""
    return list(dict.fromkeys(cell for when in conditions for cell in ground.cells(when)))
