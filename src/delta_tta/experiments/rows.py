"""A row of a store as a cell and its result; what somebody else wrote there is refused, not run into."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..errors import DataError
from .cell import Cell
from .evaluate import Result
from .trace import Trace

KINDS: dict[str, type | tuple[type, ...]] = {
    "method": str, "stream": str, "digest": str, "samples": int, "class_mean_accuracy": (int, float),
    "accuracy": (int, float), "ece": (int, float), "prediction_std": (int, float), "prediction_range": int,
    "domains": dict, "seconds": (int, float), "about": dict,
}  # fmt: skip
"""Of the fields of a result."""
ABOUT: dict[str, type] = {"data": str, "model": str, "weights": str, "normalisation": str, "versions": dict}
"""What every result says about itself."""


def written(cell: Cell, result: Result) -> tuple[str, str]:
    """Return both as JSON; the trace is kept apart."""
    return _json(cell.as_dict()), _json(result.as_dict())


def read(cell: str, result: str) -> tuple[Cell, Result]:
    """Read what `written` returned; the trace comes empty."""
    try:
        values = json.loads(result)
        _check(values, KINDS, "the result")
        _check(values["about"], ABOUT, "`about`")
        nothing = Trace(np.zeros(0, np.int32), np.zeros(0, np.int32))
        return Cell.from_dict(json.loads(cell)), Result(**values, trace=nothing)
    except KeyError as error:
        raise DataError(f"it has no {error}") from None
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DataError(str(error).rstrip(".")) from None


def _check(values: Any, kinds: dict[str, Any], what: str) -> None:
    if not isinstance(values, dict):
        raise DataError(f"expected {what} to be a table of values, but got {type(values).__name__}")
    for name, kind in kinds.items():
        if not isinstance(values[name], kind) or isinstance(values[name], bool):
            raise DataError(f"{what} has {name} = {values[name]!r:.60}")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
