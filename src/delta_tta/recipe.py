"""Parses a method string such as "tent+delta" into a `Recipe`: one component for each kind."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from . import norms, objectives, postprocess, reweighting  # noqa: F401  (they register their components)
from .errors import MethodError, SettingError, nearest
from .registry import COMPONENTS, Component, by_kind, load_packages
from .removed import removed
from .renamed import renamed
from .settings import check_names, used_by

ABBREVIATIONS = {"delta": ("tbr", "dot")}
"""Parts that stand for several."""

EMPTY = "bn"
"""The statistics of a method that trains and names none."""
SOURCE = "source"
"""Those of a method that only corrects answers."""
EXAMPLE = "tent"
"""The objective of proposals."""


@dataclass(frozen=True)
class Recipe:
    """A method as the names of its components, by kind; when to update is a setting."""

    statistics: str
    objective: str | None = None
    reweighting: str | None = None
    postprocess: str | None = None
    filter: str | None = None
    standalone: str | None = None

    @property
    def trains(self) -> Literal["nothing", "norms", "all"]:
        """Which parameters it trains: none, those of the norm layers, or all."""
        if self.standalone is not None:
            trains: Literal["norms", "all"] = COMPONENTS[self.standalone].build.trains
            return trains
        return "norms" if self.objective is not None else "nothing"

    @property
    def needs_batch_norm(self) -> bool:
        """Whether it renews statistics that only batch norms have; what trains alone, trains any norm layers."""
        renews = self.renews and (not self.per_batch or self.trains == "nothing")
        return renews or any(one.needs_batch_norm for one in self.classes)

    @property
    def splits_batches(self) -> bool:
        """Whether it runs parts of a batch with statistics of their own, which only goes without batch norms."""
        return self.per_batch and any(getattr(one, "runs_parts", False) for one in self.classes)

    @property
    def renews(self) -> bool:
        """Whether batch norm layers are replaced."""
        found: bool = COMPONENTS[self.statistics].build.renews
        return found

    @property
    def per_batch(self) -> bool:
        """Whether each batch is normalised by itself."""
        return self.renews and bool(COMPONENTS[self.statistics].build.per_batch)

    @property
    def components(self) -> tuple[Component, ...]:
        """What it is made of."""
        parts = (self.objective, self.statistics, self.reweighting, self.postprocess)
        names = (*(parts if self.standalone is None else (self.standalone,)), self.filter)
        return tuple(COMPONENTS[name] for name in names if name is not None)

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes of its components, which have the attributes of `Capabilities`."""
        return tuple(one.build for one in self.components)

    @property
    def uses(self) -> set[str]:
        """The settings that it has."""
        return used_by(self.classes, with_objective=self.trains != "nothing")

    def in_words(self, batch_norm: bool = True) -> str:
        """Say what each of its components does; without batch norm a loss has no statistics to speak of."""
        silent = "statistics" if self.objective is not None and not batch_norm else None
        return "; ".join(one.line for one in self.components if one.kind != silent)

    def __str__(self) -> str:
        """Return the shortest way to write it."""
        if self.filter is not None:
            return f"{replace(self, filter=None)}+{self.filter}"
        if self.standalone is not None:
            return self.standalone
        if self.postprocess is not None:
            before = str(replace(self, postprocess=None))
            alone = before == SOURCE and COMPONENTS[self.postprocess].alone
            return self.postprocess if alone else f"{before}+{self.postprocess}"
        if self.objective is None:
            return self.statistics
        parts = [] if self.statistics == EMPTY else [self.statistics]
        parts += [self.reweighting] if self.reweighting else []
        for short, long in ABBREVIATIONS.items():
            if tuple(parts) == long:
                parts = [short]
        return "+".join([self.objective, *parts])


def parse(method: str) -> Recipe:
    """Read a method string, or say why it cannot be read and what to write instead."""
    if not isinstance(method, str):
        raise MethodError(f"Expected `method` to be a string such as 'tent+delta', but got {method!r}.")
    load_packages()
    first, *parts = (piece.strip().lower() for piece in method.split("+"))
    _check_names(method, first, parts)
    names = [*itertools.chain.from_iterable(ABBREVIATIONS.get(part, (part,)) for part in parts)]
    for name in names:
        if [first, *names].count(name) > 1:
            short = next((part for part in reversed(parts) if part in ABBREVIATIONS), "delta")
            long = "+".join(ABBREVIATIONS[short])
            raise MethodError(f"{method!r} says {name!r} twice ({short!r} is {long!r}); write it once.")

    for name in names:
        if name in COMPONENTS[first].has:
            raise MethodError(f"{method!r} makes no sense: {first!r} does what {name!r} does already; leave it out.")

    kind = COMPONENTS[first].kind
    filters = [name for name in names if COMPONENTS[name].kind == "filter"]
    if len(filters) > 1:
        raise MethodError(f"{method!r} filters the answers twice, {' and '.join(filters)}; choose one.")
    if kind == "standalone":
        if len(names) > len(filters):
            alone = "+".join([first, *filters])
            raise MethodError(
                f"{method!r} makes no sense: {first!r} is a standalone method that takes no parts but a filter. Write "
                f"{alone!r}, or put the parts behind an objective: 'tent+{'+'.join(parts)}'."
            )
        return Recipe(EMPTY, standalone=first, filter=filters[0] if filters else None)
    if kind == "postprocess":
        if [name for name in names if name not in filters]:
            instead = "+".join([EXAMPLE, *(part for part in parts if part != first), first])
            hint = f"To correct the answers of an adapted model write {instead!r}." if COMPONENTS[first].part else ""
            raise MethodError(f"{method!r} makes no sense: {first!r} takes no parts. {hint}")
        return Recipe(SOURCE, postprocess=first, filter=filters[0] if filters else None)

    def chosen(kind: str) -> list[str]:
        return [name for name in names if COMPONENTS[name].kind == kind]

    statistics, reweightings, answers = chosen("statistics"), chosen("reweighting"), chosen("postprocess")
    objective = first if COMPONENTS[first].kind == "objective" else None
    if objective is None:
        with_loss = "+".join([EXAMPLE, *([first] if COMPONENTS[first].part else []), *parts])
        if reweightings:
            raise MethodError(
                f"{method!r} makes no sense: {reweightings[0]!r} weighs the samples of a loss, and {first!r} "
                f"minimises none. Write {with_loss!r}, or {first!r} alone."
            )
        equal = next((one for name in statistics if (one := COMPONENTS[name].build.without_objective)), None)
        if equal is not None:
            raise MethodError(
                f"{method!r} makes no sense: {statistics[0]!r} is about the gradient of a loss, and {first!r} "
                f"minimises none; without one it equals {equal!r}. Write {with_loss!r}, or {equal!r}."
            )
        if first != EMPTY and statistics:
            raise MethodError(
                f"{method!r} names two kinds of statistics, {first!r} and {statistics[0]!r}. Write {statistics[0]!r}."
            )
    if len(statistics) > 1:
        raise MethodError(f"{method!r} names two kinds of statistics, {' and '.join(statistics)}; choose one.")
    if len(reweightings) > 1:
        raise MethodError(f"{method!r} names two reweightings, {' and '.join(reweightings)}; choose one.")
    default = EMPTY if objective else first
    if len(answers) > 1:
        raise MethodError(f"{method!r} corrects the answer twice, {' and '.join(answers)}; choose one.")
    first_of = [names[0] if names else None for names in (statistics, reweightings, answers, filters)]
    recipe = Recipe(first_of[0] or default, objective, *first_of[1:])
    if recipe.splits_batches and objective is None:  # with an objective it suits models without batch norm
        raise MethodError(
            f"{method!r} makes no sense: {answers[0]!r} runs parts of a batch again, whose own statistics are others. "
            f"Write '{replace(recipe, statistics='tema')}'."
        )
    return recipe


def used_settings(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the settings that a method uses, for calls that serve many methods.

    Examples:
        >>> used_settings("bn", {"lr": 0.1, "update": "slow"})
        {'update': 'slow'}
    """
    used = parse(method).uses
    return {name: value for name, value in given.items() if name in used}


def require_used(recipe: Recipe, given: Iterable[str]) -> None:
    """Raise where a setting is used by no component of the method, and name those that would use it."""
    check_names(dict.fromkeys(given))
    used = recipe.uses
    for name in given:
        if name not in used:
            others = [one.name for one in by_kind() if name in used_by([one.build])]
            raise SettingError(
                f"Setting `{name}` is used by no part of '{recipe}'; it belongs to "
                f"{', '.join(repr(other) for other in others)}. Leave it out."
            )


def _check_names(method: str, first: str, parts: list[str]) -> None:
    gone = removed("methods", [first, *parts])
    if gone is not None:
        raise MethodError(gone)
    starts = [name for name, w in COMPONENTS.items() if w.alone]
    follows = [*(name for name, w in COMPONENTS.items() if w.part), *ABBREVIATIONS]
    if first not in starts:
        if first in follows:
            raise MethodError(f"{first!r} is a part, not a method by itself; write 'tent+{first}'.")
        raise MethodError(f"Unknown method {first!r} in {method!r}.{nearest(first, starts)}")
    for part in parts:
        if part not in follows:
            why = "starts a method and cannot follow '+'." if part in starts else "is unknown as a part."
            raise MethodError(f"{part!r} in {method!r} {why}{nearest(part, follows)}")


__getattr__ = renamed(
    __name__,
    {
        "sentences": "delta_tta.catalog:all_methods",
        "all_methods": "delta_tta.catalog:all_methods",
        "methods": "delta_tta.catalog:methods",
        "Description": "delta_tta.catalog:Description",
    },
)
