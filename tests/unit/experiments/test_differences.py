"""What changed between two stores: counts by sample, and the paired tests against enumeration."""

import itertools
import math

import numpy as np
import pytest

from delta_tta.experiments.differences import differences, mcnemar, sign_flips, standard_error
from delta_tta.experiments.store import Store
from laboratory import two_results


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (5, 0), (3, 4), (1, 7), (6, 6)])
def test_mcnemar_is_the_share_of_splits_at_least_as_uneven(gained, lost):
    total = gained + lost
    splits = [sum(bits) for bits in itertools.product((0, 1), repeat=total)]
    beyond = sum(abs(2 * heads - total) >= abs(gained - lost) for heads in splits)
    assert mcnemar(gained, lost) == pytest.approx(beyond / 2**total)
    assert mcnemar(gained, lost) == mcnemar(lost, gained)


def test_mcnemar_of_many_samples():
    assert mcnemar(2000, 2000) == 1.0
    assert 0 < mcnemar(1100, 900) < 1e-4


def test_sign_flips_are_near_the_share_of_all_flips():
    points = [1.0, 2.0, 0.5, -0.25, 1.5, 0.75]
    sums = [abs(float(np.dot(signs, points))) for signs in itertools.product((-1, 1), repeat=len(points))]
    exact = sum(one >= abs(sum(points)) - 1e-9 for one in sums) / len(sums)
    assert sign_flips(points) == pytest.approx(exact, abs=0.01)
    assert sign_flips([]) == sign_flips([0.0, 0.0]) == 1.0


def test_the_standard_error_of_the_mean():
    assert standard_error([1.0, 2.0, 3.0, 4.0]) == pytest.approx(math.sqrt(5 / 3) / 2)
    assert math.isnan(standard_error([1.0]))


def test_a_store_does_not_differ_from_itself(tmp_path):
    path = two_results(tmp_path)
    with Store(path) as store:
        found = differences(store, store)
    assert len(found.cells) == 2
    assert (found.only_before, found.only_after, found.mean, found.p) == (0, 0, 0.0, 1.0)
    for one in found.cells:
        assert (one.points, one.changed, one.gained, one.lost, one.p) == (0.0, 0, 0, 0, 1.0)
