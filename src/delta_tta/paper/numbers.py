"""What the paper prints: the numbers of its tables 1 to 14, to set beside what a run measures."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

from ..errors import InputError, nearest


@functools.cache
def _numbers() -> dict[str, Any]:
    """Return table → data set → row → column → [value, std or null]; table 1 has text for its arrows instead."""
    text = resources.files("delta_tta.paper").joinpath("paper.json").read_text(encoding="utf-8")
    numbers: dict[str, Any] = json.loads(text)
    return numbers


def tables() -> tuple[str, ...]:
    """Return the names of the tables, in the paper's order."""
    return tuple(_numbers())


def printed(exhibit: str, data: str, row: str, column: str) -> tuple[float, float | None] | None:
    """Return the value the paper prints in a cell and its standard deviation, or None where it prints no number.

    Args:
        exhibit: one of `tables()`, such as "table-5".
        data: the data set, such as "CIFAR100-C".
        row: the method spelled out, "TENT+DELTA" for the line "+DELTA" below TENT.
        column: the scenario or the parameter the table varies, such as "0.5".
    """
    numbers = _numbers()
    if exhibit not in numbers:
        raise InputError(f"The paper's numbers have no exhibit {exhibit!r}.{nearest(exhibit, numbers)}")
    cell = numbers[exhibit].get(data, {}).get(row, {}).get(column)
    if cell is None or isinstance(cell, str):  # nothing there, or an arrow
        return None
    value, std = cell
    return float(value), None if std is None else float(std)
