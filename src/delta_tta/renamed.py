"""Names that have changed: the old ones still work, and warn with the new ones."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any

NONE: Mapping[str, Any] = MappingProxyType({})


def renamed(
    module: str,
    names: Mapping[str, str] = NONE,
    stand_ins: Mapping[str, Any] = NONE,
    stacklevel: int = 2,
    gone: Mapping[str, str] = NONE,
) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module some of whose names have changed.

    Args:
        module: where it is called.
        names: of each old name, where it is now, as "package.module:name".
        stand_ins: what an old name returns where its arguments have changed with its name.
        stacklevel: 2 where what is returned is `__getattr__` itself.
        gone: of each name without a successor, what to do instead.
    """

    def find(name: str) -> Any:
        if name in gone:
            raise AttributeError(f"{module}.{name} is gone: {gone[name]}.")
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        where, _, new = names[name].partition(":")
        warnings.warn(f"{module}.{name} is now {where}.{new}.", DeprecationWarning, stacklevel=stacklevel)
        return stand_ins[name] if name in stand_ins else getattr(importlib.import_module(where), new)

    return find


def renamed_methods(names: Mapping[str, str]) -> Callable[[Any, str], Any]:
    """Return a `__getattr__` for a class some of whose methods have new names.

    Args:
        names: of each old name, the new one.
    """

    def find(self: Any, name: str) -> Any:
        if name not in names:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        warnings.warn(f"{type(self).__name__}.{name} is now {names[name]}.", DeprecationWarning, stacklevel=2)
        return getattr(self, names[name])

    return find


def moved_modules(package: str, modules: Mapping[str, str]) -> dict[str, ModuleType]:
    """Make the old submodules of a package importable, and return them by name.

    Args:
        package: the old package.
        modules: of each old submodule, the full name of the new one. Each name in it warns and comes from there.
    """
    made = {}
    for old, new in modules.items():
        name = f"{package}.{old}"
        module = made[old] = sys.modules[name] = ModuleType(name, f"What `{new}` was called before.")
        module.__getattr__ = _any_name(name, new)  # type: ignore[method-assign]
    return made


def _any_name(old: str, new: str) -> Callable[[str], Any]:
    def find(name: str) -> Any:
        if name.startswith("__"):  # the import system and `inspect` look for these
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        try:
            value = getattr(importlib.import_module(new), name)
        except AttributeError:
            raise AttributeError(f"module {old!r} has no attribute {name!r}") from None
        warnings.warn(f"{old}.{name} is now {new}.{name}.", DeprecationWarning, stacklevel=2)
        return value

    return find
