"""What is not finite is found, and named."""

import math

import pytest
import torch

from delta_tta.engine.finite import finite, not_finite
from delta_tta.signals import Reason


def test_nothing_is_finite_and_so_is_what_is_not_there():
    assert finite([])
    assert finite([None, None])
    assert not_finite({"loss": [], "gradient": [None]}) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_value_is_enough_and_all_places_are_named(value):
    fine, broken = torch.ones(2, 3), torch.ones(2, 3)
    broken[1, 2] = value
    assert finite([fine, torch.zeros(()), None])
    assert not finite([fine, None, broken])
    found = not_finite({"loss": [fine], "gradient": [None, broken], "statistics": [torch.tensor(value)]})
    assert found.reason is Reason.NOT_FINITE
    assert found == "not finite: gradient, statistics"
