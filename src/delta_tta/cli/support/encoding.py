"""Outputs that know fewer letters than we write, such as a pipe on Windows (cp1252): there, plain ASCII instead."""

from __future__ import annotations

import codecs
import sys
import unicodedata
from io import TextIOWrapper

NAME = "delta_tta.plain"
SIGNS = {
    "▲": "+", "▼": "-", "−": "-", "–": "-", "—": "-", "±": "+/-", "×": "x", "·": "*", "…": "...", "→": "->", "≤": "<=",
    "≥": ">=", "≈": "~", "∞": "inf", "λ": "lambda",
}  # fmt: skip


def plain(letter: str) -> str:
    """Return a letter in ASCII: + for ▲, rho for ρ, e for é, and ? where nothing is near."""
    if letter in SIGNS:
        return SIGNS[letter]
    name = unicodedata.name(letter, "")
    if name.startswith(("GREEK SMALL LETTER", "GREEK CAPITAL LETTER")):
        return name.split()[3].lower()
    return unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode() or "?"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(plain, error.object[error.start : error.end])), error.end


codecs.register_error(NAME, _replace)


def lenient() -> None:
    """Let the standard streams write what they can; who asked for another way (PYTHONIOENCODING) gets it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors in ("strict", "backslashreplace", "surrogateescape"):
            stream.reconfigure(errors=NAME)
