"""Settings that a user gives: their names, and their values in the types that were declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

from .errors import SettingError
from .guard_limits import Guard

AMERICAN: Mapping[str, str] = MappingProxyType({"neighbors": "neighbours"})
"""Other spellings, which are accepted."""

ALIASES: Mapping[str, str] = MappingProxyType({"learning_rate": "lr", "step_size": "lr"})
"""What others call a setting; an error says its name here."""


def typed(name: str, value: object, hint: Any) -> object:
    """Return the value in its declared type, or raise."""
    if Guard in get_args(hint):
        if isinstance(value, Guard) or value in ("on", "off"):
            return value
        raise SettingError(f"Expected setting `{name}` to be 'on', 'off' or a Guard(…), but got {value!r}.")
    literal = next((kind for kind in (hint, *get_args(hint)) if get_origin(kind) is Literal), None)
    if literal is not None:
        choices = get_args(literal)
        if type(None) in get_args(hint):
            choices += (None,)
        if value in choices and isinstance(value, (str, type(None))):
            return value
        raise SettingError(f"Expected setting `{name}` to be one of {choices}, but got {value!r}.")
    kinds = (hint,) if get_origin(hint) is tuple else get_args(hint) or (hint,)
    if value is None and type(None) in kinds:
        return None
    if any(get_origin(kind) is tuple for kind in kinds):
        numbers = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()
        if len(numbers) == 3 and all(isinstance(v, (int, float)) for v in numbers):
            return tuple(float(v) for v in numbers)
        raise SettingError(f"Expected setting `{name}` to be three numbers or None, but got {value!r}.")
    if str in kinds and isinstance(value, str):
        return value
    if isinstance(value, bool):  # a bool is an int to Python, never to a reader
        if bool in kinds:
            return value
    elif float in kinds and isinstance(value, (int, float)):
        return float(value)
    elif int in kinds and isinstance(value, int):
        return value
    expected = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
    raise SettingError(f"Expected setting `{name}` to be {expected}, but got {value!r}.")


def spelled(given: Mapping[str, object], more: Mapping[str, object] = MappingProxyType({})) -> dict[str, Any]:
    """Return the settings by the names that they have here."""
    twice = next((name for name in more if name in given), None)
    if twice is not None:
        raise SettingError(f"Expected `{twice}` once, but it is in `extra` as well.")
    given = {**given, **more}
    both = next((name for name, own in AMERICAN.items() if name in given and own in given), None)
    if both is not None:
        raise SettingError(f"Expected `{both}` or `{AMERICAN[both]}`, not both: they are one setting.")
    return {AMERICAN.get(name, name): value for name, value in given.items()}
