"""The registry of words that a method string is made of.

A word lives in one of three rooms: which statistics normalise, what is minimised, how samples are weighed.
(The fourth, when to update, is the setting `update`.) A new word is one class and one `@word(...)` line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from torch import Tensor

State = dict[str, Tensor]
"""What a word remembers between batches. Empty means: as new."""

Room = Literal["statistics", "objective", "reweighting"]


@dataclass(frozen=True)
class Word:
    """One word of the grammar.

    Attributes:
        name: as it is written in a method string.
        room: which of the questions it answers.
        build: the class that does it.
        line: what it does, in one line.
        alone: whether a method string may begin with it.
        part: whether it may follow a "+".
    """

    name: str
    room: Room
    build: type
    line: str
    alone: bool
    part: bool


WORDS: dict[str, Word] = {}
"""All registered words by name."""

T = TypeVar("T", bound=type)


def word(name: str, room: Room, line: str, *, alone: bool = False, part: bool = False) -> Callable[[T], T]:
    """Register the decorated class as the word `name`."""

    def register(build: T) -> T:
        if name in WORDS:
            raise ValueError(f"Expected a new word, but {name!r} is taken by {WORDS[name].build.__name__}.")
        WORDS[name] = Word(name, room, build, line, alone, part)
        return build

    return register
