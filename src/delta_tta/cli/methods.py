"""delta-tta methods."""

from __future__ import annotations

from rich.table import Table

from .. import recipe
from .console import Json, consoles, print_json

EXAMPLES = """
Examples:
  delta-tta methods
  delta-tta methods --json
"""


def methods(as_json: Json = False) -> None:
    """List every word a method can be made of, and what it means."""
    known = recipe.methods()
    if as_json:
        print_json(known)
        return
    table = Table("method", "what it does")
    for name, line in known.items():
        table.add_row(name, line)
    consoles()[0].print(table)
