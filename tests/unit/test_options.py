"""Settings that several components share: each value in its declared type, and in its range."""

import math
from dataclasses import dataclass

import pytest

from delta_tta import options
from delta_tta.errors import SettingError
from delta_tta.options import AlphaOptions, ObjectiveOptions, Options, PixelOptions, RateOptions, ViewOptions, require


@dataclass(frozen=True)
class Own(RateOptions):
    """A setting beside an inherited one."""

    rounds: int = 3


def test_a_value_comes_in_its_declared_type():
    assert isinstance(RateOptions(lr=1).lr, float)
    assert PixelOptions(mean=[0, 1, 0.5]).mean == (0.0, 1.0, 0.5)
    assert Own(lr=1) == Own(lr=1.0)
    for wrong in ({"lr": "0.1"}, {"rounds": 2.5}, {"rounds": True}):
        with pytest.raises(SettingError, match=f"setting `{next(iter(wrong))}` to be"):
            Own(**wrong)


def test_settings_of_a_base_class_are_checked_as_well():
    with pytest.raises(SettingError, match=r"`lr` to be greater than 0 and finite, but got -1\.0"):
        Own(lr=-1)
    assert (Own().lr, Own().rounds) == (2.5e-4, 3)


@pytest.mark.parametrize(
    ("kind", "name", "fine", "wrong"),
    [
        ("RateOptions", "lr", (1e-9, 5), (0, -1, math.inf, math.nan)),
        ("OptimizerOptions", "optimizer", ("sgd", "adam"), ("SGD", "", 1)),
        ("ObjectiveOptions", "reduction", ("batch", "selected"), ("sum",)),
        ("ThresholdOptions", "threshold", (None, 1e-9, 3), (0, -1, math.nan)),
        ("SimilarityOptions", "similarity", (1e-9, 1), (0, 1.01, math.nan)),
        ("AlphaOptions", "alpha", (0, 1), (-0.01, 1.01, math.nan)),
        ("ViewOptions", "views", (1, 100), (0, 1.5)),
        ("SeedOptions", "seed", (0, 2**32 - 1), (-1, 2**32, 0.5)),
        ("PixelOptions", "std", (None, (1, 1, 1)), ((1, 1), "abc", 1)),
    ],
)
def test_ranges(kind, name, fine, wrong):
    make = getattr(options, kind)
    for value in fine:
        assert getattr(make(**{name: value}), name) == value
    for value in wrong:
        with pytest.raises(SettingError, match=f"setting `{name}` to be"):
            make(**{name: value})


def test_inherited_settings_are_declared_once():
    assert set(ObjectiveOptions.__dataclass_fields__) == {"lr", "optimizer", "reduction"}
    assert set(ViewOptions.__dataclass_fields__) == {"mean", "std", "views"}
    assert isinstance(AlphaOptions(), Options)


def test_require():
    require("name", 1, True, "anything")
    with pytest.raises(SettingError, match=r"^Expected setting `name` to be a word, but got 1\.$"):
        require("name", 1, False, "a word")
