"""The constants of the severities."""

import numpy as np
import pytest

from delta_tta.corruptions import FAMILIES, TYPES, VALIDATION, corrupt
from scenes import SETS, scenes


def test_there_are_fifteen_types_in_four_families_and_four_more():
    assert len(TYPES) == len(set(TYPES)) == 15
    assert [len(names) for names in FAMILIES.values()] == [3, 4, 4, 4]
    assert not set(TYPES) & set(VALIDATION)
    assert len(VALIDATION) == 4


UNSTEADY = {
    "glass_blur": SETS,  # the constants trade blur, distance and rounds against each other
    "frost": SETS,  # keeps less and adds more: nearer to or farther from the image, as the picture is
    "saturate": SETS,  # 1 and 2 fade, 3 to 5 overdo
    "spatter": ("cifar",),  # from water (3) to mud (4)
    "elastic_transform": ("cifar",),  # the affine part shrinks with the severity
    "fog": ("imagenet",),  # 3 to 5 have rougher clouds rather than more
}
"""Types whose error does not always grow with the severity, by their definition."""


@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("name", [*TYPES, *VALIDATION])
def test_the_error_grows_with_the_severity(name, constants):
    clean = scenes(12, 32) if constants == "cifar" else scenes(4, 112)
    errors = [((corrupt(clean, name, s, constants) - clean.astype(float)) ** 2).mean() for s in range(1, 6)]
    assert errors[0] > 1
    if constants not in UNSTEADY.get(name, ()):
        assert (np.diff(errors) > 0).all()
