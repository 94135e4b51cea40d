"""delta-tta compare a.db b.db."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from rich.table import Table

from ...experiments.differences import Comparison, differences
from ...experiments.store import Store
from .console import consoles, print_json


def show_differences(before: Path, after: Path, as_json: bool) -> None:
    """Show what changed between two stores, the largest change first."""
    with Store(before, create=False) as first, Store(after, create=False) as second:
        found = differences(first, second)
    if as_json:
        rows = [{**dataclasses.asdict(one), "cell": one.cell.as_dict(), "points": one.points} for one in found.cells]
        print_json({**dataclasses.asdict(found), "cells": rows})
        return
    shown, _ = consoles()
    moved = sorted((one for one in found.cells if one.changed != 0), key=lambda one: -abs(one.points))
    if moved:
        table = Table("cell", "before", "after", "points", "changed", "gained", "lost", "p (McNemar)")
        for one in moved:
            colour = "green" if one.points > 0 else "red" if one.points < 0 else "dim"
            changed = "other stream" if one.changed is None else str(one.changed)
            table.add_row(
                str(one.cell), f"{one.before:.2f}", f"{one.after:.2f}", f"[{colour}]{one.points:+.2f}[/]", changed,
                str(one.gained), str(one.lost), f"{one.p:.2g}",
            )  # fmt: skip
        shown.print(table)
    shown.print(_summary(found, len(moved)), highlight=False, soft_wrap=True)


def _summary(found: Comparison, moved: int) -> str:
    count = len(found.cells)
    alone = f"{found.only_before} cells are only in the first store, {found.only_after} only in the second."
    if not count:
        return f"The stores have no cell in common. {alone}"
    error = f" ± {found.error:.2f}" if count > 1 else ""
    test = f"mean {found.mean:+.2f}{error} points (standard error), p = {found.p:.2g} by flipping signs"
    return f"{moved} of {count} common cells changed; {test}. {alone}"
