"""CIFAR's python pickles, read without running anything that stands in them."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError


class _Array:
    """What an array's pickle calls numpy.ndarray; only `_rebuilt` knows what to do with it."""


def _dtype(code: object, *_: object) -> np.dtype[Any]:
    """Return a plain type of numbers; one that holds objects would let a file make pointers."""
    text = code.decode("ascii") if isinstance(code, bytes) else code
    if not isinstance(text, str) or not re.fullmatch(r"[<>|=]?[biuf][1248]", text):
        raise pickle.UnpicklingError(f"it has an array of {text!r}, where numbers were expected")
    return np.dtype(text)


class _Rebuilt:
    """Takes the place of an array while its pickle is read; `array` is made of checked parts only."""

    array: np.ndarray[Any, Any]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, fortran, data = state
        if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
            raise pickle.UnpicklingError("it has an array that is not one of plain numbers")
        flat = np.frombuffer(data, dtype.kind)
        self.array = flat.reshape(shape, order="F" if fortran else "C").copy()


class _Dtype:
    """Takes the place of a numpy dtype, whose own state could say anything."""

    def __init__(self, code: object, *_: object) -> None:
        self.kind = _dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in (">", b">"):
            self.kind = self.kind.newbyteorder(">")


def _rebuilt(kind: type, *_: object) -> _Rebuilt:
    if kind is not _Array:
        raise pickle.UnpicklingError("it rebuilds something that is no array")
    return _Rebuilt()


def _encoded(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding!r}")
    return text.encode("latin1")


class _PlainUnpickler(pickle.Unpickler):
    """Knows arrays of numbers and text, and refuses every other name; numpy's own classes never appear."""

    KNOWN = {  # noqa: RUF012 - never changed
        ("numpy.core.multiarray", "_reconstruct"): _rebuilt,
        ("numpy._core.multiarray", "_reconstruct"): _rebuilt,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Dtype,
        ("_codecs", "encode"): _encoded,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR file does")
        return self.KNOWN[module, name]


def read_pickle(path: Path) -> dict[str, Any]:
    """Return the dictionary in one CIFAR python file, its keys as text."""
    try:
        with path.open("rb") as file:
            content = _PlainUnpickler(file, encoding="bytes").load()
    except FileNotFoundError:
        raise DataError(f"Expected the CIFAR file {path}, but there is none.") from None
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(f"{path} is not an intact CIFAR python file: {error}. Get it again.") from None
    if not isinstance(content, dict):
        raise DataError(f"Expected a dictionary in the CIFAR file {path}, but got {type(content).__name__}.")
    plain = {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}
    return {
        key: getattr(value, "array", None) if isinstance(value, _Rebuilt) else value for key, value in plain.items()
    }
