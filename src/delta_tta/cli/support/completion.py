"""What the shell offers on Tab; typer keeps of each list what begins with the letters typed so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import get_args

from ... import catalog, recipe
from ...corruptions.constants import TYPES, VALIDATION
from ...errors import MethodError
from ...experiments.cell import CLEAN
from ...experiments.experiment import GROUPS, SCENARIOS
from ...experiments.place import Kind
from ...models.load import EMBEDDED, known_models
from ...paper import BENCHMARKS, EXHIBITS
from ...settings import PRESETS, known_settings

Offered = list[tuple[str, str]]
"""Completions, each with a line about it for the shells that show one."""


def method(incomplete: str) -> Offered:
    """Offer methods, one component longer than what is typed: tent, then tent+delta, then tent+delta+lame."""
    before = incomplete.rpartition("+")[0]
    found: dict[str, str] = {}
    for name, line in catalog.methods().items():
        alone = not name.startswith("+")
        for candidate in [name] if alone else [f"{base}{name}" for base in (before, incomplete) if base]:
            if _makes_sense(candidate):
                found[candidate] = line
    return list(found.items())


def _makes_sense(candidate: str) -> bool:
    try:
        recipe.parse(candidate)
    except MethodError:
        return False
    return True


def scenario() -> list[str]:
    """Offer the paper's scenarios, written so that no shell needs quotes."""
    return [*_unquoted(), "natural"]


def _unquoted() -> Iterator[str]:
    for spec in SCENARIOS:
        values = {"rho": spec.rho, "pi": spec.pi}
        yield ",".join([spec.scenario, *(f"{name}={value:g}" for name, value in values.items() if value is not None)])


def corruption() -> Offered:
    """Offer corruptions, and the names of groups of them."""
    groups = [(name, f"{len(several)} corruptions") for name, several in GROUPS.items()]
    return [*_types(), *groups, (CLEAN, "the clean images")]


def corruption_type() -> Offered:
    """Offer single corruptions."""
    return _types()


def _types() -> Offered:
    return [*((name, "test type") for name in TYPES), *((name, "validation type") for name in VALIDATION)]


def exhibit() -> Offered:
    """Offer the tables and figures of the paper."""
    return [(name, spec.title) for name, spec in EXHIBITS.items()]


def setting() -> list[str]:
    """Offer the names of settings."""
    return [f"{name}=" for name in known_settings()]


def among(names: Iterable[str]) -> Callable[[], list[str]]:
    """Return a function that offers these names."""
    words = list(names)
    return lambda: words


benchmark, preset, data = (among(names) for names in (BENCHMARKS, ["auto", *PRESETS], get_args(Kind)))
model = among(name.partition("…")[0] for name in known_models() if ".py:" not in name)
first_weights = among(["random", "published", *EMBEDDED])
