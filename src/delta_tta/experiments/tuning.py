"""Settings chosen on validation corruptions, as the paper chose α and λ: every combination, and which did best."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import SettingError
from ..streams import StreamSpec
from .cell import Cell
from .differences import standard_error
from .experiment import Experiment

VALUES = (0.9, 0.95, 0.99, 0.999)
"""What the paper chose α and λ from."""
GRID: Mapping[str, tuple[Any, ...]] = {"alpha": VALUES, "lam": VALUES}


@dataclass(frozen=True)
class Trial:
    """One combination of settings: the cells it is judged by, and, once they were run, what they came to.

    Attributes:
        settings: those of the grid.
        cells: one for each stream, corruption, severity, batch size and seed.
        by_scenario: class-mean accuracy in percent, the mean over everything else.
        mean: over the scenarios.
        values: of each cell.
    """

    settings: tuple[tuple[str, Any], ...]
    cells: tuple[Cell, ...]
    by_scenario: tuple[float, ...] = ()
    mean: float = float("nan")
    values: tuple[float, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.settings) or "source"


def trials(base: Experiment, grid: Mapping[str, Sequence[Any]]) -> list[Trial]:
    """Return every combination of the grid.

    Args:
        base: one method, and where it is tried.
        grid: the values of each setting.
    """
    if len(base.methods) != 1:
        raise SettingError(f"Expected one method to tune, but got {len(base.methods)}.")
    if not grid or not all(grid.values()):
        raise SettingError("Expected at least one setting to tune, and at least one value for each.")
    twice = [name for name in grid if name in base.settings]
    if twice:
        raise SettingError(f"Expected `{twice[0]}` either to be tuned or to be set, but both were asked for.")
    found = []
    for values in itertools.product(*grid.values()):
        own = tuple(zip(grid, values, strict=True))
        experiment = dataclasses.replace(base, settings={**base.settings, **dict(own)})
        found.append(Trial(own, tuple(experiment.cells())))
    return found


def reference(base: Experiment) -> Trial:
    """Return the source model over the same streams: the line to beat."""
    return Trial((), tuple(dataclasses.replace(base, methods=("source",), settings={}).cells()))


def judged(trial: Trial, scenarios: Sequence[StreamSpec], accuracy: Callable[[Cell], float]) -> Trial:
    """Return the trial with its means; `accuracy` gives the share of each cell."""
    shares: dict[StreamSpec, list[float]] = {one: [] for one in scenarios}
    values = tuple(100 * accuracy(cell) for cell in trial.cells)
    for cell, value in zip(trial.cells, values, strict=True):
        shares[next(one for one in scenarios if dataclasses.replace(cell.stream, seed=one.seed) == one)].append(value)
    means = tuple(statistics.fmean(each) for each in shares.values())
    return dataclasses.replace(trial, by_scenario=means, mean=statistics.fmean(means), values=values)


def tied(best: Trial, other: Trial) -> bool:
    """Whether the other may be as good: paired over the cells, less than two standard errors behind.

    With a single cell there is no standard error, and nothing can be told.
    """
    behind = [mine - theirs for mine, theirs in zip(best.values, other.values, strict=True)]
    return not statistics.fmean(behind) > 2 * standard_error(behind)
