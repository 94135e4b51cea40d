"""CIFAR's python pickles, read without running anything that stands in them."""

from __future__ import annotations

import codecs
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError


def _empty_array(kind: type, shape: tuple[int, ...], code: bytes) -> np.ndarray[Any, Any]:
    return np.ndarray(shape, code.decode())


class _PlainUnpickler(pickle.Unpickler):
    """Knows arrays and text, and refuses every other name."""

    KNOWN = {  # noqa: RUF012 - never changed
        ("numpy.core.multiarray", "_reconstruct"): _empty_array,
        ("numpy._core.multiarray", "_reconstruct"): _empty_array,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): codecs.encode,
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
    return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}
