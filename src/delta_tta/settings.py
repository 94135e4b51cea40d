"""The settings of a method: those that every method has, and beside them those of its components."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from .errors import SettingError, nearest
from .guard_limits import Guard
from .options import as_declared
from .options import require as _require
from .presets import PRESETS as PRESETS
from .presets import RECOMMENDED_DEFAULTS as RECOMMENDED_DEFAULTS
from .presets import on_cifar as on_cifar
from .registry import SETTINGS, declared_by, options_of
from .removed import refuse_removed
from .renamed import renamed
from .typed import ALIASES

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .settings_typing import SettingsAttributes, SettingsDict
else:
    SettingsAttributes = object

T = TypeVar("T")


@dataclass(frozen=True, init=False)
class Settings(SettingsAttributes):
    """Everything about a method that its name does not say.

    The fields are what every method has. The components of a method declare the rest, as `Options` beside their code;
    `settings.options(Options)` returns these, and each is an attribute as well: `settings.lr`. The defaults are the
    paper's for ImageNet-C, the cautious ones; methods with anchored statistics have `RECOMMENDED_DEFAULTS`.

    Attributes:
        update: "every" batch; "slow": answer at once, learn from each `length` samples when they are full;
            "window": at each batch learn from the last `length` samples; "auto": every, but slow for batches of fewer
            than 9 samples.
        length: L of the slow update and the window, in samples.
        background: learn in a worker thread after the answer, so that the caller need not wait for it.
        episodic: forget everything before each batch.
        reset_every: go back to the source after so many updates; None: never. Parameters, optimizer, moving averages
            and what objective, reweighting and post-processing remember start again. The counts of `signals` and of the
            guard, a filter's beliefs and samples kept for a later update stay.
        sync: adapt together with the other processes of torch.distributed, as one model on one large batch.
        guard: "on": never learn from garbage (not finite, out of proportion, blank), and undo a collapse; "off":
            nothing of it; or a `Guard` of your own.
        compile: run the model through torch.compile, for batches of any size. The first batches take up to minutes.
        layout: memory layout of images and weights: "contiguous", "channels_last", or None, as they are given. "auto"
            times both on the first 14 batches by turns, and keeps the faster; answers depend on it by rounding.
        memory: "low" keeps about half of the bytes for the backward pass, of a ReLU's output one bit a value, and takes
            longer; None keeps what torch keeps.
        estimate: estimate how many answers are right, without labels: `signals.accuracy`. This runs the source now and
            then, and changes no answer. With sync=True there is none.
        extra: the settings of the components, by name, that differ from their defaults.
    """

    update: Literal["every", "slow", "window", "auto"] = "every"
    length: int = 64
    background: bool = False
    episodic: bool = False
    reset_every: int | None = None
    sync: bool = False
    guard: Guard | Literal["on", "off"] = "off"
    compile: bool = False
    layout: Literal["auto", "channels_last", "contiguous"] | None = None
    memory: Literal["low"] | None = None
    estimate: bool = False
    extra: tuple[tuple[str, Any], ...] = ()

    def __init__(self, *, extra: Iterable[tuple[str, Any]] = (), **settings: Unpack[SettingsDict]) -> None:
        check_names(settings)
        values: dict[str, Any] = {**dict(extra), **settings}
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, values.pop(field.name, field.default))
        object.__setattr__(self, "extra", tuple(sorted(values.items())))
        self.__post_init__()

    def options(self, kind: type[T]) -> T:
        """Return the settings that a component declares.

        Args:
            kind: the dataclass, such as the component's `Options`.
        """
        made: dict[type, Any] = self.__dict__.setdefault("_made", {})  # layers ask at every batch
        if kind not in made:
            names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]  # it is a dataclass
            made[kind] = kind(**{name: value for name, value in self.extra if name in names})
        found: T = made[kind]
        return found

    def of(self, names: Collection[str]) -> dict[str, Any]:
        """Return what every method has, and the settings of the components with these names; a guard as its limits."""
        common = {name: value for name, value in dataclasses.asdict(self).items() if name != "extra"}
        return common | {name: getattr(self, name) for name in sorted(names) if name not in common}

    def _unusual(self) -> Iterator[tuple[str, Any]]:
        """Give the settings of the components in their declared types, but for those that have their defaults."""
        for name, value in self.extra:
            kind = declaring(name)
            if kind is None:
                yield name, value
                continue
            own = getattr(self.options(kind), name)
            if own != next(field.default for field in dataclasses.fields(kind) if field.name == name):
                yield name, own

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_made"}

    if not TYPE_CHECKING:  # `SettingsAttributes` says which there are

        def __getattr__(self, name: str) -> Any:
            """Return a setting of a component; where the method has no such component, its default."""
            if not name.startswith("_"):  # copying and pickling look for methods before there is anything
                for known, value in self.extra:
                    if known == name:
                        return value
                if (kind := declaring(name)) is not None:
                    return getattr(self.options(kind), name)
            raise AttributeError(f"There is no setting {name!r}.")

    def __post_init__(self) -> None:
        as_declared(self, COMMON)
        object.__setattr__(self, "extra", tuple(self._unusual()))
        _require("length", self.length, self.length >= 1, "at least 1")
        _require("reset_every", self.reset_every, self.reset_every is None or self.reset_every >= 1, "at least 1")
        every = self.update in ("every", "auto")
        fine = every or not self.episodic  # otherwise the kept samples would be forgotten
        _require("sync", self.sync, not self.sync or every, "False unless update='every' or 'auto'")
        _require("sync", self.sync, not (self.sync and self.background), "False with background=True")
        _require("compile", self.compile, not (self.compile and self.sync), "False with sync=True")
        alike = self.layout != "auto" or not (self.compile or self.sync)  # every layout is compiled; ranks would differ
        _require("layout", self.layout, alike, "'channels_last', 'contiguous' or None with compile=True or sync=True")
        _require("memory", self.memory, not (self.memory and self.compile), "None with compile=True")
        _require("episodic", self.episodic, fine, "False with update='slow' or 'window'")


COMMON = (
    "update",
    "length",
    "background",
    "episodic",
    "reset_every",
    "sync",
    "guard",
    "compile",
    "layout",
    "memory",
    "estimate",
)
"""Settings that every method has."""


def make_settings(
    preset: str | None, given: Mapping[str, Any], components: Sequence[Any] = (), base: Mapping[str, Any] | None = None
) -> Settings:
    """Lay the given settings over the components' own, those over the preset's, and all over the defaults.

    Args:
        preset: one of `PRESETS`.
        given: by the user.
        components: the classes that the method is made of.
        base: over the preset's and below the components' own.
    """
    if preset is not None and preset not in PRESETS:
        raise SettingError(f"Unknown preset {preset!r}.{nearest(str(preset), PRESETS)}")
    check_names(given)
    usual: dict[str, Any] = {**(PRESETS[preset] if preset is not None else {}), **(base or {})}
    if components:
        used = used_by(components)
        usual = {name: value for name, value in usual.items() if name in used}
    own: dict[str, Any] = {}
    for one in components:
        own |= {**one.defaults, **one.defaults_by_preset.get(preset or "", {})}
    settings = Settings(extra=(usual | own | dict(given)).items())
    for one in components:
        for kind in options_of(one):
            settings.options(kind)  # it checks its values
    return settings


def declaring(name: str) -> type | None:
    """Return the dataclass in which a component declares a setting; None where none does."""
    if name not in SETTINGS:
        importlib.import_module(f"{__package__}.adapt")  # whoever registers components is imported by now
    return SETTINGS.get(name)


def known_settings() -> list[str]:
    """Return the names of all settings, those of registered components among them."""
    declaring("")
    return [*COMMON, *SETTINGS]


def check_names(given: Mapping[str, Any]) -> None:
    """Raise where a setting is unknown."""
    refuse_removed("settings", given)
    for name in given:
        if name not in COMMON and declaring(name) is None:
            usual = ALIASES.get(name)
            hint = nearest(name, known_settings()) if usual is None else f" Here it is called {usual!r}."
            raise SettingError(f"Unknown setting {name!r}.{hint}")


def used_by(components: Sequence[Any], with_objective: bool = False) -> set[str]:
    """Return the settings that a method of these components has."""
    names = (name for one in components for name in (*one.uses, *declared_by(one, alone=not with_objective)))
    return {*COMMON, *names}


def settings_of(component: Any) -> tuple[str, ...]:
    """Return the settings that a component reads, besides those that every method has."""
    return tuple(dict.fromkeys((*component.uses, *declared_by(component))))


__getattr__ = renamed(
    __name__,
    {"OURS": "delta_tta.settings:RECOMMENDED_DEFAULTS"},
    gone={"PAPER": "`Settings()` has the paper's; `RECOMMENDED_DEFAULTS` says where others differ"},
)
