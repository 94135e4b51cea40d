"""Names that are gone: errors say what to write instead. `renamed.py` has the names that still work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from .errors import SettingError

_SAME = "methods are the same in `adapt` and on the command line; leave it out"
_ONE_RULE = "one rule undoes a collapse, and its limit is `agreement`"
_ANCHORED = "`+anchored` took the place of `+tbr-b`, and has `alpha` alone"
_HOLDS = "methods with `anchored` hold on to the source"

REMOVED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "settings": {
            "paper": "every method behaves as its paper says; leave out `paper`",
            "pace": f"leave it out; {_HOLDS}",
            "alpha_b": _ANCHORED,
            "lam_b": _ANCHORED,
            "clip_b": _ANCHORED,
            "init='auto'": f"write init='first' or init='inherit'; {_HOLDS}",
        },
        "methods": {
            "tbr-b": "write 'anchored', another method for the same streams",
            "delta-b": "write 'anchored+dot', another method for the same streams",
        },
        "Guard": {"coherence": _ONE_RULE, "drift": _ONE_RULE, "hasty_agreement": _ONE_RULE},
        "compare": {"--defaults": _SAME},
        "tune": {"--paper": _SAME},
    }
)
"""By where it was written: what took the place of each name."""


def removed(where: str, names: Iterable[str]) -> str | None:
    """Return the message about the first of the names that is gone; None where all remain.

    Examples:
        >>> removed("compare", ["--seed", "--defaults"])[:63]
        "Expected a name of today, but got '--defaults', which is gone: "
    """
    gone = REMOVED.get(where, {})
    found = next((name for name in names if name in gone), None)
    return None if found is None else f"Expected a name of today, but got {found!r}, which is gone: {gone[found]}."


def refuse_removed(where: str, given: Mapping[str, Any]) -> None:
    """Raise if one of the settings, or its value, is gone."""
    message = removed(where, [*given, *(f"{name}={value!r}" for name, value in given.items())])
    if message is not None:
        raise SettingError(message)
