"""The colours of pictures."""

import numpy as np
import pytest

from delta_tta.report.looks import class_colours


@pytest.mark.parametrize("count", [1, 2, 6, 10, 12, 20, 100])
def test_no_two_classes_have_the_same_colour(count):
    colours = class_colours(count)
    assert colours.shape == (count, 3)
    assert ((colours >= 0) & (colours <= 1)).all()
    apart = np.abs(colours[:, None] - colours).max(axis=-1) + np.eye(count)
    assert apart.min() > (0.02 if count > 20 else 0.08)
