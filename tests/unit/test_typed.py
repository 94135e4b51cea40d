"""Values in the types that were declared, and the names of settings as they are written here."""

import re
from typing import Literal

import pytest

from delta_tta.errors import SettingError
from delta_tta.guard_limits import Guard
from delta_tta.typed import spelled, typed

Numbers = tuple[float, float, float]


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, float, 1.0),
        (2, int, 2),
        (True, bool, True),
        (None, float | None, None),
        (3, float | None, 3.0),
        (4, int | None, 4),
        ("head", str | None, "head"),
        ("a", Literal["a", "b"], "a"),
        (None, Literal["a", "b"] | None, None),
        ([0, 1, 2], Numbers | None, (0.0, 1.0, 2.0)),
        (None, Numbers | None, None),
        ("off", Guard | Literal["on", "off"], "off"),
        (Guard(), Guard | Literal["on", "off"], Guard()),
    ],
)
def test_a_value_in_its_type(value, hint, expected):
    found = typed("x", value, hint)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "hint", "words"),
    [
        ("1", float, "float, but got '1'"),
        (True, float, "float, but got True"),
        (True, int, "int, but got True"),
        (1.0, int, "int, but got 1.0"),
        (1, bool, "bool, but got 1"),
        (None, float, "float, but got None"),
        ("x", int | None, "int or None, but got 'x'"),
        (3, str | None, "str or None, but got 3"),
        ("c", Literal["a", "b"], "one of ('a', 'b'), but got 'c'"),
        (None, Literal["a", "b"], "one of ('a', 'b'), but got None"),
        (1, Literal["a"] | None, "one of ('a', None), but got 1"),
        ((1, 2), Numbers | None, "three numbers or None, but got (1, 2)"),
        ("123", Numbers | None, "three numbers or None, but got '123'"),
        ((1, 2, "3"), Numbers, "three numbers or None, but got (1, 2, '3')"),
        ("yes", Guard | Literal["on", "off"], "'on', 'off' or a Guard(…), but got 'yes'"),
        (True, Guard | Literal["on", "off"], "'on', 'off' or a Guard(…), but got True"),
    ],
)
def test_another_value_is_refused(value, hint, words):
    with pytest.raises(SettingError, match=rf"^Expected setting `x` to be {re.escape(words)}\.$"):
        typed("x", value, hint)


def test_other_spellings_are_accepted():
    assert spelled({"neighbors": 3, "lr": 1}) == {"neighbours": 3, "lr": 1}
    assert spelled({"lr": 1}, {"neighbors": 3}) == {"lr": 1, "neighbours": 3}


def test_a_setting_that_comes_twice_is_refused():
    with pytest.raises(SettingError, match="Expected `lr` once, but it is in `extra` as well"):
        spelled({"lr": 1}, {"lr": 1})
    for given in (({"neighbors": 1, "neighbours": 1},), ({"neighbors": 1}, {"neighbours": 1})):
        with pytest.raises(SettingError, match="`neighbors` or `neighbours`, not both"):
            spelled(*given)
