"""What a report shows, as plain values: tables, figures, strips and galleries; the other files draw them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Number:
    """One number of a table.

    Attributes:
        mean: over the runs; percent for accuracies.
        std: over the seeds; None where there is one seed.
        best: whether it is the best of its column.
        gain: points over the row this one builds on; None where it builds on none.
        paper: what the paper prints here; None where it prints nothing.
        paper_std: the paper's deviation; None where it prints none.
        runs: how many runs are behind it; `of` says how many it should be.
        of: fewer runs than these means that the number is not final.
    """

    mean: float
    std: float | None = None
    best: bool = False
    gain: float | None = None
    paper: float | None = None
    paper_std: float | None = None
    runs: int = 1
    of: int = 1


@dataclass(frozen=True)
class Column:
    """The head of a column, and what stands above several of them."""

    label: str
    group: str = ""


@dataclass(frozen=True)
class Row:
    """A line of a table; None where nothing was run and the paper prints nothing."""

    label: str
    numbers: tuple[Number | None, ...]


@dataclass(frozen=True)
class Table:
    """A table of the paper, or another one."""

    id: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    head: str = "Method"
    digits: int = 1


@dataclass(frozen=True)
class Series:
    """One line, or one set of bars: x and y have the same length."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Panel:
    """One pair of axes. A logarithmic x-axis is `log_x`; `ticks` names places on it."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    mark: Literal["line", "points", "bar"] = "line"
    log_x: bool = False
    ticks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Figure:
    """Panels side by side."""

    id: str
    title: str
    panels: tuple[Panel, ...]
    note: str = ""


@dataclass(frozen=True)
class Strip:
    """A stream in the order of arrival: each sample's class."""

    label: str
    classes: tuple[int, ...]


@dataclass(frozen=True)
class Strips:
    """Streams as coloured bars, one below the other; `names` are those of the classes."""

    id: str
    title: str
    strips: tuple[Strip, ...]
    names: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """An image with its name, as base64 of a PNG file."""

    label: str
    png: str


@dataclass(frozen=True)
class Gallery:
    """Images side by side."""

    id: str
    title: str
    pictures: tuple[Picture, ...]
    note: str = ""


Exhibit = Table | Figure | Strips | Gallery


def shows_something(one: Exhibit) -> bool:
    """Whether there is anything in it."""
    if isinstance(one, Table):
        return any(number is not None for row in one.rows for number in row.numbers)
    if isinstance(one, Figure):
        return any(panel.series for panel in one.panels)
    return bool(one.strips if isinstance(one, Strips) else one.pictures)


@dataclass(frozen=True)
class Report:
    """Everything on one page. `lead` says on what it was run; `about` is a list of facts (versions, data, time)."""

    title: str
    lead: str
    exhibits: tuple[Exhibit, ...]
    about: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON; each exhibit says its `kind`."""
        return {
            **asdict(self),
            "exhibits": [{"kind": type(one).__name__.lower(), **asdict(one)} for one in self.exhibits],
        }
