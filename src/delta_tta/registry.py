"""The registry of words that a method string is made of.

A word lives in a room: which statistics normalise, what is minimised, how samples are weighed (when to update is the
setting `update`); besides, how the answer is corrected, how answers are filtered over the stream, and whole methods
that are not made of parts. A new word is one class and one `@word(...)` line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from torch import Tensor

State = dict[str, Tensor]
"""What a word remembers between batches. Empty means: as new."""

Kind = Literal["statistics", "objective", "reweighting", "postprocess", "filter", "standalone"]


@dataclass(frozen=True)
class Component:
    """One word of the grammar.

    Attributes:
        name: as it is written in a method string.
        room: which of the questions it answers.
        build: the class that does it.
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
"""All registered words by name."""

T = TypeVar("T", bound=type)


def component(
    name: str, kind: Kind, line: str, *, alone: bool = False, part: bool = False, has: tuple[str, ...] = ()
) -> Callable[[T], T]:
    """Register the decorated class as the word `name`."""

    def register(build: T) -> T:
        if name in COMPONENTS:
            raise ValueError(f"Expected a new word, but {name!r} is taken by {COMPONENTS[name].build.__name__}.")
        COMPONENTS[name] = Component(name, kind, build, line, alone, part, has)
        return build

    return register
