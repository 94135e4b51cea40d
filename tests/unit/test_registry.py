"""The registry of components."""

import pytest

from delta_tta.objectives import Tent
from delta_tta.registry import COMPONENTS, component


def test_a_name_can_be_taken_once():
    with pytest.raises(ValueError, match="taken by Tent"):
        component("tent", "objective", "again", alone=True)(Tent)
    assert COMPONENTS["tent"].build is Tent


def test_the_kind_is_known():
    with pytest.raises(ValueError, match=r"^Unknown kind 'objectiv' of component 'new'\. Did you mean 'objective'\?"):
        component("new", "objectiv", "a new one")
