"""delta-tta methods."""

from __future__ import annotations

from rich.table import Table

from .. import recipe
from ..registry import COMPONENTS
from ..settings import settings_of
from .console import Json, consoles, print_json

EXAMPLES = """
Examples:
  delta-tta methods
  delta-tta methods --json
"""


def methods(as_json: Json = False) -> None:
    """List every component a method can be made of, what it does, and its settings."""
    known = recipe.methods()
    if as_json:
        print_json(known)
        return
    table = Table("method", "what it does", "its settings")
    for name, line in known.items():
        part = COMPONENTS.get(name.removeprefix("+"))
        table.add_row(name, line, "" if part is None else ", ".join(sorted(settings_of(part.build))))
    consoles()[0].print(table)
