"""The limits of the guard: which are possible, and what took the place of those that are gone."""

import dataclasses
import math

import pytest

from delta_tta.errors import SettingError
from delta_tta.guard_limits import Guard


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("agreement", (-0.1, 1.1, math.nan), "between 0 and 1"),
        ("samples", (0, -3), "at least 1"),
        ("every", (0,), "at least 1"),
        ("cooling", (0, 1.5, math.nan), "greater than 0 and at most 1"),
        ("reach", (1, 0.5, math.nan), "greater than 1"),
        ("alike", (-0.01, 2), "between 0 and 1"),
    ],
)
def test_impossible_limits_are_refused(name, values, words):
    for value in values:
        with pytest.raises(SettingError, match=rf"^Expected `{name}` of Guard to be {words}, but got {value!r}\.$"):
            Guard(**{name: value})


@pytest.mark.parametrize(
    ("name", "values"),
    [("agreement", (0, 1)), ("samples", (1,)), ("every", (1,)), ("cooling", (1e-9, 1)), ("alike", (0, 1))],
)
def test_the_ends_of_each_range_belong_to_it(name, values):
    for value in values:
        assert getattr(Guard(**{name: value}), name) == value


@pytest.mark.parametrize("name", ["coherence", "drift", "hasty_agreement"])
def test_limits_that_are_gone_say_what_to_write(name):
    with pytest.raises(SettingError, match=rf"'{name}', which is gone: one rule undoes a collapse, .*`agreement`"):
        Guard(**{name: 0.5})


def test_it_is_a_value():
    one = Guard(agreement=0.8)
    assert one == dataclasses.replace(Guard(), agreement=0.8) != Guard()
    assert {one: 1}[Guard(agreement=0.8)] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.reach = 3
