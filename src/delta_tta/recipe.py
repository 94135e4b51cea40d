"""Parses a method string such as "tent+delta" into a `Recipe`: one component for each kind."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from . import norms, objectives, postprocess, reweighting  # noqa: F401  (they register their components)
from .errors import MethodError, SettingError, nearest
from .registry import COMPONENTS, Component, Kind, load_packages
from .settings import check_names, used_by

ABBREVIATIONS = {"delta": ("tbr", "dot")}
"""Parts that stand for several."""

LINES = {
    "delta": "the paper's method: tbr and dot together (DELTA, Zhao et al. 2023)",
}


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
            return "all"
        return "norms" if self.objective is not None else "nothing"

    @property
    def needs_batch_norm(self) -> bool:
        """Whether it renews statistics that only batch norms have; what trains alone, trains any norm layers."""
        return self.statistics != "source" and (self.statistics != "bn" or self.trains == "nothing")

    @property
    def splits_batches(self) -> bool:
        """Whether it runs parts of a batch with statistics of their own, which only goes without batch norms."""
        return self.statistics == "bn" and any(getattr(one, "runs_parts", False) for one in self.classes)

    @property
    def components(self) -> tuple[Component, ...]:
        """What it is made of."""
        if self.standalone is not None:
            return (COMPONENTS[self.standalone],)
        names = (self.objective, self.statistics, self.reweighting, self.postprocess, self.filter)
        return tuple(COMPONENTS[name] for name in names if name is not None)

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes of its components, which have the attributes of `Capabilities`."""
        return tuple(one.build for one in self.components)

    def in_words(self, batch_norm: bool = True) -> str:
        """Say what each of its components does; without batch norm a loss has no statistics to speak of."""
        silent = "statistics" if self.objective is not None and not batch_norm else None
        return "; ".join(one.line for one in self.components if one.kind != silent)

    def __str__(self) -> str:
        """Return the shortest way to write it."""
        if self.standalone is not None:
            return self.standalone
        if self.filter is not None:
            return f"{replace(self, filter=None)}+{self.filter}"
        if self.postprocess is not None:
            before = str(replace(self, postprocess=None))
            alone = before == "source" and COMPONENTS[self.postprocess].alone
            return self.postprocess if alone else f"{before}+{self.postprocess}"
        if self.objective is None:
            return self.statistics
        parts = [] if self.statistics == "bn" else [self.statistics]
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
    if kind == "standalone":
        if parts:
            raise MethodError(
                f"{method!r} makes no sense: {first!r} is a standalone method that takes no parts. Write {first!r}, or "
                f"put the parts behind an objective: 'tent+{'+'.join(parts)}'."
            )
        return Recipe("bn", standalone=first)
    filters = [name for name in names if COMPONENTS[name].kind == "filter"]
    if len(filters) > 1:
        raise MethodError(f"{method!r} filters the answers twice, {' and '.join(filters)}; choose one.")
    if kind == "postprocess":
        if [name for name in names if name not in filters]:
            instead = "+".join(["tent", *(part for part in parts if part != first), first])
            hint = f"To correct the answers of an adapted model write {instead!r}." if COMPONENTS[first].part else ""
            raise MethodError(f"{method!r} makes no sense: {first!r} takes the model as it is, without parts. {hint}")
        return Recipe("source", postprocess=first, filter=filters[0] if filters else None)

    def chosen(kind: str) -> list[str]:
        return [name for name in names if COMPONENTS[name].kind == kind]

    statistics, reweightings, answers = chosen("statistics"), chosen("reweighting"), chosen("postprocess")
    objective = first if COMPONENTS[first].kind == "objective" else None
    if objective is None:
        with_loss = "+".join(["tent", *([first] if COMPONENTS[first].part else []), *parts])
        if reweightings:
            raise MethodError(
                f"{method!r} makes no sense: {reweightings[0]!r} weighs the samples of a loss, and {first!r} "
                f"minimises none. Write {with_loss!r}, or {first!r} alone."
            )
        if "tbr" in statistics:
            raise MethodError(
                f"{method!r} makes no sense: TBR is about the gradient of a loss, and {first!r} minimises none; "
                f"without one it equals TEMA. Write {with_loss!r}, or 'tema'."
            )
        if first != "bn" and statistics:
            raise MethodError(
                f"{method!r} names two kinds of statistics, {first!r} and {statistics[0]!r}. Write {statistics[0]!r}."
            )
    if len(statistics) > 1:
        raise MethodError(f"{method!r} names two kinds of statistics, {' and '.join(statistics)}; choose one.")
    if len(reweightings) > 1:
        raise MethodError(f"{method!r} names two reweightings, {' and '.join(reweightings)}; choose one.")
    default = "bn" if objective else first
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
    used = used_by(parse(method).classes)
    return {name: value for name, value in given.items() if name in used}


def require_used(recipe: Recipe, given: Iterable[str]) -> None:
    """Raise where a setting is used by no component of the method, and name those that would use it."""
    check_names(dict.fromkeys(given), recipe.classes)
    used = used_by(recipe.classes)
    for name in given:
        if name == "prior" and str(recipe) != "bn":
            raise SettingError(f"Setting `prior` belongs to method 'bn', but the method is '{recipe}'.")
        if name not in used:
            others = [one.name for one in _components() if name in used_by([one.build])]
            raise SettingError(
                f"Setting `{name}` is used by no part of '{recipe}'; it belongs to "
                f"{', '.join(repr(other) for other in others)}. Leave it out."
            )


def _check_names(method: str, first: str, parts: list[str]) -> None:
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


def _components() -> list[Component]:
    """Return the components kind by kind."""
    load_packages()
    return sorted(COMPONENTS.values(), key=lambda w: get_args(Kind).index(w.kind))


def methods() -> dict[str, str]:
    """List every component of a method string, with one line each; parts begin with "+".

    Examples:
        >>> import delta_tta
        >>> for name, line in delta_tta.methods().items():
        ...     print(f"{name:8} {line}")  # doctest: +ELLIPSIS
        source   the model as it is, nothing adapts
        ...
    """
    alone = {w.name: w.line for w in _components() if w.alone}
    parts = {f"+{w.name}": w.line for w in _components() if w.part}
    return {**alone, **parts, **{f"+{name}": LINES[name] for name in ABBREVIATIONS}}


def sentences() -> list[str]:
    """List every method that can be written for a model with batch norms, in its shortest form."""
    starts = [w.name for w in _components() if w.alone]
    parts = [w for w in _components() if w.part]
    kinds = [[None, *(w.name for w in parts if w.kind == kind)] for kind in dict.fromkeys(w.kind for w in parts)]
    choices = [[name for name in chosen if name is not None] for chosen in itertools.product(*kinds)]
    found: dict[str, None] = {}
    for start, chosen in itertools.product(starts, sorted(choices, key=len)):
        try:
            recipe = parse("+".join([start, *chosen]))
        except MethodError:
            continue
        if not recipe.splits_batches:
            found[str(recipe)] = None
    return list(found)
