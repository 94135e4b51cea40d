"""Names that have changed: the old ones still work, and say what they are called now."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module some of whose names have changed.

    Args:
        module: where it is called.
        names: of each old name, where it is now, as "package.module:name".
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        where, _, new = names[name].partition(":")
        warnings.warn(f"{module}.{name} is now {where}.{new}.", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(where), new)

    return find
