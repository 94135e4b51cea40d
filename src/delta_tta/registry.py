"""The registry of components that a method is made of.

A component is of one kind: which statistics normalise, what is minimised, how samples are weighed, how answers are
corrected, how they are filtered over the stream; or a standalone method, which takes no parts but a filter. A new
component is one class with one `@component(...)` line. What it can do and needs stands in the class (`Capabilities`),
so nothing else has to know its name. Packages add components through the entry-point group "delta_tta.methods".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, ClassVar, Literal, TypeVar, get_args

from torch import Tensor

from .errors import MethodError, nearest

State = dict[str, Tensor]
"""What a component remembers between batches. Empty means: as new."""

Kind = Literal["statistics", "objective", "reweighting", "postprocess", "filter", "standalone"]

GROUP = "delta_tta.methods"
"""Entry points of this group name a module that registers components when it is imported."""


class Capabilities:
    """What a component can do and needs; a class says what differs.

    Attributes:
        Options: a frozen dataclass of settings, such as a subclass of `options.Options`. `adapt` takes its fields as
            keywords; `settings.options(Options)` returns it. Those of the base classes count as well.
        OptionsAlone: the same, of settings that it reads in methods without an objective only.
        uses: settings that other components declare and it reads, by name.
        defaults: settings that differ from the usual ones.
        defaults_by_preset: the same, by preset, over `defaults`.
        needs_source: whether it must see images of the training distribution: adapt(model, method, source=loader).
        needs_batch_norm: whether a standalone method cannot do without batch norm layers.
        trains: which parameters a standalone method trains: those of the norm layers, or all.
        synchronises: whether several processes may adapt as one.
        bakes: whether unload(keep=True) may leave a plain model.
        on_edge: whether `delta_tta.edge` can do the same without torch.
        cost: of a sample, in forward passes, where it is much more than that of a training step.
    """

    Options: ClassVar[type | None] = None
    OptionsAlone: ClassVar[type | None] = None
    uses: ClassVar[tuple[str, ...]] = ()
    defaults: ClassVar[Mapping[str, Any]] = {}
    defaults_by_preset: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    needs_source: ClassVar[bool] = False
    needs_batch_norm: ClassVar[bool] = False
    trains: ClassVar[Literal["norms", "all"]] = "all"
    synchronises: ClassVar[bool] = True
    bakes: ClassVar[bool] = True
    on_edge: ClassVar[bool] = False
    cost: ClassVar[float] = 0.0


@dataclass(frozen=True)
class Component:
    """A part of a method, or a standalone method.

    Attributes:
        name: as it is written in a method string.
        kind: what it decides.
        build: the class that does it; its attributes are those of `Capabilities`.
        line: what it does, in one line.
        alone: whether a method string may begin with it.
        part: whether it may follow a "+".
        has: parts that it does already, so that they may not follow it.
    """

    name: str
    kind: Kind
    build: Any
    line: str
    alone: bool
    part: bool
    has: tuple[str, ...] = ()


COMPONENTS: dict[str, Component] = {}
"""All registered components by name."""

SETTINGS: dict[str, type] = {}
"""Of the settings of all registered components, the dataclass that declares each."""

T = TypeVar("T", bound=type)


def component(
    name: str, kind: Kind, line: str, *, alone: bool = False, part: bool = False, has: tuple[str, ...] = ()
) -> Callable[[T], T]:
    """Register the decorated class, which has the base class of its kind, under a name."""
    if kind not in get_args(Kind):
        raise ValueError(f"Unknown kind {kind!r} of component {name!r}.{nearest(str(kind), get_args(Kind))}")

    def register(build: T) -> T:
        if name in COMPONENTS:
            raise ValueError(f"Expected a new name, but {name!r} is taken by {COMPONENTS[name].build.__name__}.")
        if not issubclass(build, Capabilities):
            raise TypeError(f"Expected {build.__name__} to have the base class of its kind ({kind}).")
        declared = declared_by(build)
        for setting, where in declared.items():
            if not _alike(setting, SETTINGS.get(setting, where), where):
                raise ValueError(
                    f"Expected setting {setting!r} of {name!r} to have the type and default of that of "
                    f"{SETTINGS[setting].__qualname__}; inherit it from there, or choose another name."
                )
        SETTINGS.update(declared)
        COMPONENTS[name] = Component(name, kind, build, line, alone, part, has)
        return build

    return register


def options_of(build: type, alone: bool = True) -> list[type]:
    """Return the dataclasses of settings of a component, those of its base classes first.

    Args:
        build: the component's class.
        alone: whether those that it reads in methods without an objective count.
    """
    names = ("Options", "OptionsAlone") if alone else ("Options",)
    found = (vars(base).get(name) for base in reversed(build.__mro__) for name in names)
    return [kind for kind in found if kind is not None]


def declared_by(build: type, alone: bool = True) -> dict[str, type]:
    """Return the dataclass that declares each setting of a component, by the name of the setting."""
    return {
        field.name: [base for base in kind.__mro__ if _field(base, field.name) is field][-1]
        for kind in options_of(build, alone)
        for field in dataclasses.fields(kind)
    }


def _field(kind: type, name: str) -> dataclasses.Field[Any] | None:
    fields: dict[str, dataclasses.Field[Any]] = vars(kind).get("__dataclass_fields__", {})
    return fields.get(name)


def _alike(name: str, one: type, other: type) -> bool:
    """Whether two classes declare a setting in the same way."""
    first, second = _field(one, name), _field(other, name)
    assert first is not None
    assert second is not None
    return first is second or (str(first.type) == str(second.type) and first.default == second.default)


def by_kind() -> list[Component]:
    """Return all components, kind by kind."""
    load_packages()
    return sorted(COMPONENTS.values(), key=lambda one: get_args(Kind).index(one.kind))


def load_packages() -> None:
    """Import what installed packages register; once, before the first method is read."""
    if _loaded:
        return
    _loaded.append(True)
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            _loaded.clear()
            raise MethodError(
                f"The package that adds {entry.name!r} ({entry.value}) could not be loaded: {error}. Repair or "
                "uninstall it."
            ) from error


_loaded: list[bool] = []
