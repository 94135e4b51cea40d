"""Tables on the terminal, with rich."""

from __future__ import annotations

from typing import Literal

from rich import box
from rich.align import Align
from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from .shown import Column, Number, Table
from .text import arrow, gains, missing, plain, signed, spread, unfinished


def rich_table(table: Table, arrows: bool = False) -> Group:
    """Return the table: the best of a column bold, gains green and losses red, the paper's numbers and how far off dim.

    Results, gains and the paper's numbers are separate lines, so that eight columns fit into 100 characters; for the
    same reason the paper's std is left out. With `arrows` gains stand beside their numbers, and the table has a frame.
    """
    star = missing(table)
    below = "\n".join(part for part in (f"* {star}" if star else "", table.note) if part)
    plainly = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    shown = RichTable() if arrows else plainly
    whole = all(len(row.label) <= 24 for row in table.rows)  # such names are kept in one line; numbers may take two
    shown.add_column(_head(Column(table.head), "left"), overflow="fold", no_wrap=whole and not arrows)
    for column in table.columns:
        shown.add_column(_head(column, "right"), justify="right", overflow="fold")
    tall = False
    for row in table.rows:
        pairs = list(zip(table.columns, row.numbers, strict=True))
        lines = [[Text(row.label), *(_ours(number, table.digits, arrows) for _, number in pairs)]]
        points = None if arrows else gains(row, table.digits)
        if points:
            lines.append([Text(), *(Text(text, style="red" if text[:1] == "−" else "green") for text in points)])
        if any(number is not None and number.paper is not None for number in row.numbers):
            lines.append([Text("paper", style="dim"), *(_theirs(number, table.digits) for _, number in pairs)])
        if tall or (len(lines) > 1 and shown.row_count):
            shown.add_row()  # or one could not see which lines belong together
        tall = len(lines) > 1
        for line in lines:
            shown.add_row(*line)
    # not rich's own title and caption: they would be squeezed into the width of a narrow table
    above = [Text(table.title, style="bold")] if table.title else []
    return Group(*above, shown, *([Text(below, style="dim")] if below else []))


def _head(column: Column, side: Literal["left", "right"]) -> Align:
    text = Text(justify=side)
    if column.group:
        text.append(f"{column.group}\n", style="dim")
    text.append(column.label)
    return Align(text, side, vertical="bottom")  # the labels in one line, even where a group has wrapped


def _ours(number: Number | None, digits: int, arrows: bool) -> Text:
    text = Text()
    if number is not None:
        text.append(plain(number.mean, digits), style="bold" if number.best else "")
        if number.std is not None:
            text.append(f" {spread(number.std, digits).replace('±0.', '±.')}")  # a character less in every column
        text.append("*" if unfinished(number) else "")
        if arrows and number.gain is not None:
            text.append(f" {arrow(number.gain, digits):>5}", style="green" if number.gain > 0 else "red")
    return text


def _theirs(number: Number | None, digits: int) -> Text:
    if number is None or number.paper is None:
        return Text()
    difference = signed(number.mean - number.paper, digits)
    return Text(f"{plain(number.paper, digits)} {difference}", style="dim")
