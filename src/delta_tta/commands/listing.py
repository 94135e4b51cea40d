"""delta-tta methods."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from .. import recipe
from .shared import consoles


def methods(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> None:
    """List every method that can be written, and what its words mean."""
    known = recipe.methods()
    if as_json:
        typer.echo(json.dumps(known, indent=1, ensure_ascii=False))
        return
    table = Table("method", "what it does")
    for name, line in known.items():
        table.add_row(name, line)
    consoles()[0].print(table)
