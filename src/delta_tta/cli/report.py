"""delta-tta report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..experiments.store import Store
from ..paper.store_report import store_report
from ..report.page import write_page
from .support.console import Json, print_json, say

EXAMPLES = """
Examples:
  delta-tta report                              # of delta-tta.db, to delta-tta-report.html
  delta-tta report results.db --out page.html
"""


def report(
    store: Annotated[Path, typer.Argument(help="A store of results.")] = Path("delta-tta.db"),
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("delta-tta-report.html"),
    as_json: Json = False,
) -> None:
    """Write one HTML page of everything in a store: it opens from disk and needs no network."""
    with Store(store, create=False) as opened:
        made = store_report(opened)
    write_page(made, out)
    if as_json:
        print_json({"page": str(out), **made.as_dict()})
    say(f"The page: {out}")
