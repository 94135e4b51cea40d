"""One run as a value: a method over one stream."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from .. import recipe
from ..corruptions.constants import TYPES, VALIDATION
from ..errors import SettingError, nearest
from ..settings import Settings, make_settings
from ..streams import StreamSpec
from ..typed import spelled
from .place import Place

CLEAN = "none"
"""In the place of a corruption: the clean images."""
Order = Literal["each", "continual", "mixed"]


@dataclass(frozen=True)
class Cell:
    """One run: a method over one stream. What it is called and where the files lie does not change its result.

    Attributes:
        place: images and model.
        method: in the paper's notation.
        stream: the order of arrival, with its seed.
        corruptions: one, or several that come one after another ("continual") or all at once ("mixed") without a reset.
        order: which; "each" for one.
        severity: of the corruptions, 1 to 5.
        batch_size: images at a time.
        settings: over the preset's, in the order of their names; those that the method does not use are left out.
        statistics: whether the statistics of a layer are kept in the trace.
        samples: how many of the stream, from its beginning; None for all.
        passes: how many times the stream is repeated, without a reset.
    """

    place: Place
    method: str
    stream: StreamSpec
    corruptions: tuple[str, ...] = ("motion_blur",)
    order: Order = "each"
    severity: int = 5
    batch_size: int = 64
    settings: tuple[tuple[str, Any], ...] = ()
    statistics: bool = False
    samples: int | None = None
    passes: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.passes, int) or self.passes < 1:
            raise SettingError(f"Expected `passes` to be an integer of at least 1, but got {self.passes!r}.")
        if self.samples is not None and (not isinstance(self.samples, int) or self.samples < 1):
            raise SettingError(f"Expected `samples` to be an integer of at least 1, but got {self.samples!r}.")
        given = {name: tuple(v) if isinstance(v, list) else v for name, v in spelled(dict(self.settings)).items()}
        object.__setattr__(self, "settings", used_settings(self.method, given))
        object.__setattr__(self, "method", self._understood[0])
        for name in self.corruptions:
            if name not in (*TYPES, *VALIDATION, CLEAN):
                raise SettingError(f"Unknown corruption {name!r}.{nearest(name, (*TYPES, *VALIDATION, CLEAN))}")
        if self.severity not in range(1, 6):
            raise SettingError(f"Expected `severity` to be an integer from 1 to 5, but got {self.severity!r}.")
        if not isinstance(self.batch_size, int) or self.batch_size < 1:
            raise SettingError(f"Expected `batch_size` to be an integer of at least 1, but got {self.batch_size!r}.")
        fine = len(self.corruptions) == 1 if self.order == "each" else len(self.corruptions) > 1
        if self.order not in get_args(Order) or not fine:
            raise SettingError(
                f"Expected one corruption for the order 'each' and several for 'continual' or 'mixed', but got "
                f"{len(self.corruptions)} and {self.order!r}."
            )

    def __str__(self) -> str:
        what = f"{self.corruptions[0]} {self.severity}" if self.order == "each" else self.order
        extra = f", {self.in_words}" if self.settings else ""
        extra += f", first {self.samples} samples" if self.samples else ""
        extra += f", {self.passes} passes" if self.passes > 1 else ""
        return f"{self.method} on {what}, {self.stream}, B={self.batch_size}{extra}"

    @property
    def in_words(self) -> str:
        """The settings that were given."""
        return ", ".join(f"{name}={value}" for name, value in self.settings)

    @property
    def spelled_out(self) -> Settings:
        """The settings, with the preset's and the method's own."""
        return self._understood[1]

    @property
    def _understood(self) -> tuple[str, Settings]:
        # with their spelling, as 1 and True are equal, but a setting may be the one and not the other
        return _understood(self.method, self.place.preset, self.settings, repr(self.settings))

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {**dataclasses.asdict(self), "stream": str(self.stream), "settings": dict(self.settings)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Cell:
        """Read what `as_dict` wrote."""
        own = {
            **values,
            "place": Place(**values["place"]),
            "stream": StreamSpec.parse(values["stream"]),
            "corruptions": tuple(values["corruptions"]),
            "settings": tuple(values["settings"].items()),
        }
        return cls(**own)


def used_settings(method: str, given: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return those of the given settings that a method uses, in the order of their names."""
    parsed = recipe.parse(method)
    make_settings(None, given, parsed.classes)  # a wrong value is refused even where it is not used
    used = parsed.uses
    return tuple(sorted((name, value) for name, value in given.items() if name in used))


@functools.lru_cache(maxsize=10_000)
def _understood(
    method: str, preset: str | None, settings: tuple[tuple[str, Any], ...], spelling: str
) -> tuple[str, Settings]:
    """Return the method in its shortest form and all its settings; remembered, as plans ask thousands of times."""
    parsed = recipe.parse(method)
    return str(parsed), make_settings(preset, dict(settings), parsed.classes)
