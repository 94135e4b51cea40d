"""The errors that users see. Each says what was expected, what came, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DeltaError(Exception):
    """Base of all errors raised on purpose by delta-tta."""


class MethodError(DeltaError, ValueError):
    """The method string cannot be parsed, or its components do not fit together."""


class SettingError(DeltaError, ValueError):
    """A setting or preset is unknown, of the wrong type or out of range."""


class ModelError(DeltaError, ValueError):
    """The model does not have what the method needs."""


class InputError(DeltaError, ValueError):
    """A batch, or what the model makes of it, cannot be used; nothing has been changed."""


class StreamError(DeltaError, ValueError):
    """A stream cannot be made from these labels and parameters."""


class DataError(DeltaError, ValueError):
    """Data or weights are missing, damaged or not in the expected layout."""


class StateError(DeltaError, ValueError):
    """A saved state does not belong to this adapter, or the adapter is in no state to do this."""


class SyncError(DeltaError, RuntimeError):
    """Another process of a synchronised adapter did not answer."""


def install(extra: str) -> str:
    """Return how to get the packages of an extra."""
    return f"pip install 'delta-tta[{extra}]', or in a clone pip install '.[{extra}]'"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the nearest valid name, then all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"{hint} Known: {', '.join(names)}."
