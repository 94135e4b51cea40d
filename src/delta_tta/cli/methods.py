"""delta-tta methods."""

from __future__ import annotations

from rich.table import Table

from .. import catalog
from .support.console import Json, consoles, print_json

EXAMPLES = """
Examples:
  delta-tta methods
  delta-tta methods --json
"""


def methods(as_json: Json = False) -> None:
    """List every component a method can be made of, what it does, and its settings."""
    known = catalog.methods()
    if as_json:
        print_json({name: {"line": line, "settings": line.settings} for name, line in known.items()})
        return
    table = Table("method", "what it does", "its settings")
    for name, line in known.items():
        table.add_row(name, line, ", ".join(sorted(line.settings)))
    consoles()[0].print(table)
