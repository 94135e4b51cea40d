"""Experiments as values: what is to be run, cell by cell, from Python, the command line or a TOML file."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .. import recipe
from ..corruptions.constants import TYPES, VALIDATION
from ..errors import InputError, SettingError, nearest
from ..streams import StreamSpec
from .cell import CLEAN, Cell, Order, used_settings
from .place import Kind, Place

__all__ = [
    "CLEAN",
    "FAMILIES",
    "GROUPS",
    "SCENARIOS",
    "Cell",
    "Experiment",
    "Kind",
    "Order",
    "Place",
    "from_mapping",
    "from_toml",
    "scenarios",
]

FAMILIES = ("gaussian_noise", "motion_blur", "fog", "jpeg_compression")
"""One corruption of each: noise, blur, weather, digital."""
GROUPS: Mapping[str, tuple[str, ...]] = {"all": TYPES, "families": FAMILIES, "validation": VALIDATION}
"""Names that stand for several corruptions."""
SCENARIOS: tuple[StreamSpec, ...] = (
    StreamSpec("IS+CB"),
    StreamSpec("DS+CB", rho=0.1),
    StreamSpec("IS+CI", pi=0.05),
    StreamSpec("DS+CI", rho=0.5, pi=0.05),
)
"""The paper's four test scenarios."""


@dataclass(frozen=True)
class Experiment:
    """Methods × scenarios × corruptions × severities × batch sizes × seeds on one place.

    `reset` "each shift" starts every corruption from the source; "never" adapts from one to the next without a reset.
    """

    methods: tuple[str, ...]
    place: Place = field(default_factory=Place)
    scenarios: tuple[StreamSpec, ...] = SCENARIOS
    corruptions: tuple[str, ...] = ("motion_blur",)
    severities: tuple[int, ...] = (5,)
    batch_sizes: tuple[int, ...] = (64,)
    seeds: tuple[int, ...] = (2020,)
    reset: Literal["each shift", "never"] = "each shift"
    settings: Mapping[str, Any] = field(default_factory=dict)
    statistics: bool = False
    samples: int | None = None
    passes: int = 1

    def cells(self) -> list[Cell]:
        """Return the cells, those on the same images next to each other; wrong values are refused here."""
        if self.reset not in ("each shift", "never"):
            raise SettingError(f"Expected `reset` to be 'each shift' or 'never', but got {self.reset!r}.")
        names = tuple(itertools.chain.from_iterable(GROUPS.get(name, (name,)) for name in self.corruptions))
        for what in ("methods", "scenarios", "corruptions", "severities", "batch_sizes", "seeds"):
            if not getattr(self, what):
                raise SettingError(f"Expected at least one of the {what}, but there is none.")
        for name in self.settings:
            if not any(name in dict(used_settings(method, self.settings)) for method in self.methods):
                recipe.require_used(recipe.parse(self.methods[0]), [name])
        together = self.reset == "never" and len(names) > 1
        axes = itertools.product(
            [names] if together else [(name,) for name in names],
            self.severities,
            self.seeds,
            self.scenarios,
            self.batch_sizes,
            self.methods,
        )
        cells = [
            Cell(
                self.place,
                method,
                dataclasses.replace(scenario, seed=seed),
                corruptions=corruption,
                order="continual" if together else "each",
                severity=severity,
                batch_size=batch_size,
                settings=tuple(self.settings.items()),
                statistics=self.statistics,
                samples=self.samples,
                passes=self.passes,
            )
            for corruption, severity, seed, scenario, batch_size, method in axes
        ]
        return list(dict.fromkeys(cells))


def from_mapping(values: Mapping[str, Any], root: Path | None = None) -> Experiment:
    """Return the experiment that a TOML file or a command line describes; unknown keys are errors.

    Args:
        values: the fields of `Place` and `Experiment`, all on one level; `settings` is a nested table. Scenarios
            are texts such as "DS+CB (rho=0.1)".
        root: relative paths start here.
    """
    places = [one.name for one in dataclasses.fields(Place)]
    others = [one.name for one in dataclasses.fields(Experiment) if one.name != "place"]
    for name in values:
        if name not in (*places, *others):
            raise SettingError(f"Unknown key {name!r}.{nearest(name, (*places, *others))}")
    if not values.get("methods"):
        raise SettingError(
            "Expected `methods`, such as ['tent', 'tent+delta'], but there is none. On the command line: -m tent -m "
            "tent+delta; `delta-tta methods` lists them."
        )
    given = {name: _listed(name, values[name]) for name in others if name in values}
    if "scenarios" in given:
        given["scenarios"] = scenarios(given["scenarios"])
    place = {name: values[name] for name in places if name in values}
    kinds = {
        **dict.fromkeys((name for name in place if name not in ("mean", "std")), str),
        "images": int,
        "samples": int,
        "passes": int,
        "statistics": bool,
        "settings": dict,
    }
    for name, kind in kinds.items():
        value = values.get(name)
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise SettingError(f"Expected `{name}` to be of type {kind.__name__}, but got {value!r}.")
    for name in ("mean", "std"):
        if isinstance(values.get(name), str):
            raise SettingError(f"Expected `{name}` to be three numbers, but got {values[name]!r}.")
    nested = [name for name, value in given.get("settings", {}).items() if isinstance(value, dict)]
    if nested:
        raise SettingError(f"Expected the setting `{nested[0]}` to be a number or a text, but got a table.")
    return Experiment(place=Place(**(place if root is None else _from(root, place))), **given)


def _from(root: Path, place: Mapping[str, Any]) -> dict[str, Any]:
    """Return the place with its files sought from `root`; weights may also be the name of published ones."""
    found = dict(place)
    for name in ("path", "clean"):
        if name in found:
            found[name] = str(root / found[name])
    if (root / found.get("weights", "")).is_file():
        found["weights"] = str(root / found["weights"])
    file, colon, factory = found.get("model", "").rpartition(":")
    if colon and file.endswith(".py"):
        found["model"] = f"{root / file}:{factory}"
    return found


def scenarios(texts: Sequence[str]) -> tuple[StreamSpec, ...]:
    """Read scenarios such as "DS+CB (rho=0.1)"; their seeds are given apart."""
    for text in texts:
        if "seed" in text:
            raise SettingError(f"Expected a scenario without its seed, but got {text!r}; give the seeds as `seeds`.")
    return tuple(map(StreamSpec.parse, texts))


def from_toml(path: Path) -> Experiment:
    """Read an experiment; paths in it are relative to the file."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except FileNotFoundError:
        raise InputError(f"Expected an experiment (TOML) at {path}, but there is none.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} is not readable as TOML: {error}.") from None
    return from_mapping(values, path.parent)


def _listed(name: str, value: Any) -> Any:
    """Return lists as tuples; a single value where several are possible is a list of one."""
    kinds = {"methods": str, "scenarios": str, "corruptions": str, "severities": int, "batch_sizes": int, "seeds": int}
    if name not in kinds:
        return value
    values: Sequence[Any] = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    wrong = [one for one in values if not isinstance(one, kinds[name]) or isinstance(one, bool)]
    if wrong:
        raise SettingError(f"Expected `{name}` to be a list of {kinds[name].__name__}, but got {wrong[0]!r}.")
    return tuple(values)
