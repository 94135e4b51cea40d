"""Exhibits as files: tables as Markdown, CSV and LaTeX, everything else as PNG and SVG."""

from __future__ import annotations

from pathlib import Path

from ..files import write_text
from .pictures import draw
from .shown import Exhibit, Table, shows_something
from .text import csv, latex, markdown


def write_exhibit(one: Exhibit, folder: Path) -> None:
    """Write everything an exhibit can be into a folder, under its name; a figure without a line is not drawn."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(one, Table):
        for suffix, text in ((".md", markdown(one)), (".csv", csv(one)), (".tex", latex(one))):
            write_text(folder / f"{one.id}{suffix}", text)
        return
    if shows_something(one):
        for suffix in (".png", ".svg"):
            draw(one, folder / f"{one.id}{suffix}")
