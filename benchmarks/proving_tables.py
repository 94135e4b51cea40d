"""The proving ground's tables and picture: what a method gains on each cell, summed up by group."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from delta_tta.experiments.cell import CLEAN, Cell
from delta_tta.experiments.differences import standard_error
from delta_tta.experiments.evaluate import Result
from proving_cases import Case

FIRST = 256
"""Samples of the beginning of a stream that are looked at by themselves."""
HARM = 0.5
"""Points below which a cell counts as harmed."""


@dataclass(frozen=True)
class Gain:
    """A method against another on one case, in points."""

    case: Case
    points: float
    first: float


def gains(asked: Sequence[Case], method: str, against: str, result: Callable[[Cell], Result]) -> list[Gain]:
    """Return the differences, case by case."""
    made = []
    for case in asked:
        one, other = result(case.cell(method)), result(case.cell(against))
        first = [100 * float(r.trace.correct[:FIRST].mean()) for r in (one, other)]
        points = 100 * (one.class_mean_accuracy - other.class_mean_accuracy)
        made.append(Gain(case, points, first[0] - first[1]))
    return made


def groups(asked: Sequence[Case]) -> dict[str, Callable[[Case], bool]]:
    """Return what a table has lines for."""
    found: dict[str, Callable[[Case], bool]] = {"all": lambda case: True}
    for kind in ("shuffled", "dependent"):
        found[kind] = lambda case, kind=kind: case.kind == kind
    found["clean images"] = lambda case: case.corruption == CLEAN
    for count in sorted({case.network.classes for case in asked}):
        found[f"{count:,} classes"] = lambda case, count=count: case.network.classes == count
    for size in sorted({case.batch_size for case in asked}):
        found[f"B = {size}"] = lambda case, size=size: case.batch_size == size
    for name in dict.fromkeys(case.network.name for case in asked):
        found[name] = lambda case, name=name: case.network.name == name
        for kind in ("shuffled", "dependent"):
            found[f"{name}, {kind}"] = lambda case, name=name, kind=kind: (
                case.network.name == name and case.kind == kind
            )
    return found


def line(label: str, own: Sequence[Gain]) -> str:
    """Return a line of the table; the standard error is over networks and corruptions, whose streams go together."""
    together: dict[tuple[str, str], list[float]] = {}
    for gain in own:
        together.setdefault((gain.case.network.name, gain.case.corruption), []).append(gain.points)
    error = standard_error([statistics.fmean(points) for points in together.values()])
    worst = min(own, key=lambda gain: gain.points)
    harmed = 100 * statistics.fmean(gain.points < -HARM for gain in own)
    first = f"{statistics.fmean(gain.first for gain in own):+.1f} (worst {min(gain.first for gain in own):+.1f})"
    mean = f"{statistics.fmean(gain.points for gain in own):+.1f} ± {error:.1f}"
    return f"| {label} | {len(own)} | {mean} | {harmed:.0f} % | {worst.points:+.1f} ({worst.case}) | {first} |"


def table(method: str, against: str, made: Sequence[Gain]) -> Iterator[str]:
    """Yield the lines of one comparison."""
    yield f"\n**{method} against {against}, points of class-mean accuracy**\n"
    yield f"| | cells | mean | more than {HARM} below | worst | first {FIRST} samples |"
    yield "|---|---|---|---|---|---|"
    for label, belongs in groups([gain.case for gain in made]).items():
        own = [gain for gain in made if belongs(gain.case)]
        if own:
            yield line(label, own)


def picture(made: dict[str, Sequence[Gain]], path: Path) -> None:
    """Draw the mean gain over Source on each network, by kind of stream; a short line is the worst cell."""
    names = list(dict.fromkeys(gain.case.network.name for own in made.values() for gain in own))
    height = 1.6 + 0.45 * len(names)
    figure = Figure(figsize=(10, height), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, kind in zip(axes, ("shuffled", "dependent"), strict=True):
        axis.axvline(0, color="black", linewidth=0.8)
        for number, (method, own) in enumerate(made.items()):
            offset = 0.3 * (number - (len(made) - 1) / 2) / max(1, len(made) - 1)
            points = {
                name: [g.points for g in own if g.case.network.name == name and g.case.kind == kind] for name in names
            }
            rows = [(place + offset, points[name]) for place, name in enumerate(names) if points[name]]
            axis.scatter([statistics.fmean(p) for _, p in rows], [y for y, _ in rows], color=f"C{number}", label=method)
            axis.scatter([min(p) for _, p in rows], [y for y, _ in rows], color=f"C{number}", marker="|")
        axis.set(title=f"{kind} streams", xlabel="points over Source")
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(made))
    figure.savefig(path, dpi=110)
