"""What a corrupted set is made of, and the card beside it that says so."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from .. import __version__
from ..errors import DataError
from ..files import UNFINISHED, json_safe, write_text
from . import frost_source
from .constants import ConstantSet

CARD = "corruptions.json"
SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Plan:
    """What is to be made; kept beside the result, so that a second run with other parameters is refused."""

    layout: Literal["cifar", "imagenet"]
    source: str
    digest: str
    samples: int
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    constants: ConstantSet
    seed: int
    size: tuple[int, int] | None

    def card(self) -> dict[str, Any]:
        """Return the plan for the record, with what else determines the bytes."""
        frost = {"frost": frost_source()} if "frost" in self.corruptions else {}
        return {**json_safe(asdict(self)), **frost, "delta-tta": __version__}


def claim(place: Path, plan: Plan) -> None:
    """Write the card, or check that the one that is there says the same."""
    card, path = plan.card(), place / CARD
    if path.exists():
        there = _read_card(path)
        # More corruptions may join later, frost among them; the name is for the record; all else must be the same.
        was = {key: there.get(key) for key in card if key in there or key != "frost"}
        differs = [key for key in was if key not in ("corruptions", "source") and was[key] != card[key]]
        if differs:
            words = ", ".join(f"{key} {was[key]!r} (now {card[key]!r})" for key in differs)
            raise DataError(f"{place} holds a set made with {words}. Write to another folder.")
        card = {**there, **card, "corruptions": sorted({*there["corruptions"], *card["corruptions"]})}
    elif any(not UNFINISHED.fullmatch(file.name) for file in place.iterdir()):
        raise DataError(f"Expected an empty folder, or one this command began, but {place} has other files in it.")
    write_text(path, json.dumps(card, indent=1) + "\n")


def _read_card(path: Path) -> dict[str, Any]:
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        names = card["corruptions"]
        if isinstance(card, dict) and isinstance(names, list) and all(isinstance(name, str) for name in names):
            return card
    except (ValueError, TypeError, KeyError):
        pass
    raise DataError(f"{path} is damaged; remove it if the files beside it are not needed.")
