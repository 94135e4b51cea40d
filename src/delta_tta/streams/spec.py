"""What determines a stream, but for the labels; written as the paper writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from ..errors import StreamError, nearest

Scenario = Literal["IS+CB", "DS+CB", "IS+CI", "DS+CI", "natural", "videos"]

PIECES = 10
"""J: into how many pieces a dependent stream divides every class."""


@dataclass(frozen=True)
class StreamSpec:
    """Everything but the labels that determines a stream.

    Attributes:
        scenario: independent (IS) or dependent (DS) samples, class-balanced (CB) or -imbalanced (CI); "natural", the
            order of the data set; or "videos", whole videos in random order, each as it was filmed.
        rho: ρ of DS, the concentration: the smaller, the longer a class fills the view.
        pi: π of CI, the size of the rarest class relative to the most frequent.
        seed: of all random draws; the paper names 2020 to 2023.
        pieces: J of DS.

    Examples:
        >>> print(StreamSpec("DS+CI", rho=0.5, pi=0.05))
        DS+CI (ρ=0.5, π=0.05), seed 2020
        >>> StreamSpec.parse("DS+CI (ρ=0.5, π=0.05), seed 2020") == StreamSpec("DS+CI", rho=0.5, pi=0.05)
        True
    """

    scenario: Scenario
    rho: float | None = None
    pi: float | None = None
    seed: int = 2020
    pieces: int = PIECES

    def __post_init__(self) -> None:
        if self.scenario not in get_args(Scenario):
            raise StreamError(f"Unknown scenario {self.scenario!r}.{nearest(str(self.scenario), get_args(Scenario))}")
        for name, letter, wanted, fine, words in (
            ("rho", "ρ", self.dependent, self.rho is not None and 0 < self.rho < float("inf"), "greater than 0"),
            ("pi", "π", self.imbalanced, self.pi is not None and 0 < self.pi <= 1, "in (0, 1]"),
        ):
            value = getattr(self, name)
            if wanted and value is None:
                raise StreamError(f"{self.scenario} needs `{name}` ({letter}), {words}, such as {name}=0.1.")
            if wanted and not fine:
                raise StreamError(f"Expected `{name}` ({letter}) of {self.scenario} to be {words}, but got {value!r}.")
            if not wanted and value is not None:
                raise StreamError(f"{self.scenario} has no `{name}` ({letter}), but got {value!r}; leave it out.")
        check_seed(self.seed)
        if not isinstance(self.pieces, int) or self.pieces < 1:
            raise StreamError(f"Expected `pieces` (J) to be an integer of at least 1, but got {self.pieces!r}.")

    @property
    def dependent(self) -> bool:
        """Whether samples of a class come in runs (DS)."""
        return self.scenario.startswith("DS")

    @property
    def imbalanced(self) -> bool:
        """Whether classes are resampled to unequal frequencies (CI)."""
        return self.scenario.endswith("CI")

    def __str__(self) -> str:
        """Write it as the paper does."""
        return self.without_seed if self.scenario == "natural" else f"{self.without_seed}, seed {self.seed}"

    @property
    def without_seed(self) -> str:
        """The same without the seed."""
        values = [f"ρ={_number(self.rho)}"] if self.dependent else []
        values += [f"π={_number(self.pi)}"] if self.imbalanced else []
        values += [f"J={self.pieces}"] if self.dependent and self.pieces != PIECES else []
        return self.scenario + (f" ({', '.join(values)})" if values else "")

    @classmethod
    def parse(cls, text: str) -> StreamSpec:
        """Read what `str` writes, or the same without brackets: "DS+CB,rho=0.1" needs no quotes in a shell."""
        pairs = r"\(([^)]*)\)|((?:\s*,\s*\w+\s*=[^,]*)*)"
        match = re.fullmatch(rf"\s*([^\s(,]+)\s*(?:{pairs})\s*(?:,\s*seed\s+(\d+))?\s*", text)
        names = {"ρ": "rho", "rho": "rho", "π": "pi", "pi": "pi", "J": "pieces"}
        values: dict[str, float] = {}
        try:
            assert match is not None
            for pair in filter(None, (match[2] or match[3] or "").split(",")):
                letter, value = pair.split("=")
                values[names[letter.strip()]] = float(value) if letter.strip() != "J" else int(value)
        except (AssertionError, ValueError, KeyError) as error:
            raise StreamError(
                f"Expected a stream such as 'DS+CI (ρ=0.5, π=0.05), seed 2020', but got {text!r}."
            ) from error
        seed = {"seed": int(match[4])} if match[4] else {}
        return cls(match[1], **values, **seed)  # type: ignore[arg-type]  # checked by __post_init__


def _number(value: float | None) -> str:
    """Write 1.0 as 1, and never lose a digit."""
    return f"{value:g}" if value == float(f"{value:g}") else repr(value)


def check_seed(seed: int) -> None:
    """Refuse what the generators do not take for a seed."""
    if not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise StreamError(f"Expected `seed` to be an integer from 0 to 2**32 - 1, but got {seed!r}.")
