"""How much mirror images count, and when a whole batch is mirrored."""

import itertools

import numpy as np
import pytest
import torch

from delta_tta.evidence import LONGEST, until_next
from delta_tta.rules.mirror import PRIOR, counts_after, weights


def test_a_class_counts_by_itself_as_far_as_it_was_seen():
    agreed, weighed = np.array([0.0, 30.0, 900.0]), np.array([0.0, 100.0, 1000.0])
    overall = 930 / 1100
    expected = [overall, (30 + PRIOR * overall) / (100 + PRIOR), (900 + PRIOR * overall) / (1000 + PRIOR)]
    assert weights(agreed, weighed) == pytest.approx(expected)
    assert weights(torch.from_numpy(agreed), torch.from_numpy(weighed)).tolist() == pytest.approx(expected)


def test_no_mirror_image_counts_more_than_the_image():
    assert weights(np.array([5.0, 40.0]), np.array([5.0, 20.0])).tolist() == [1, 1]


def test_classes_that_change_in_a_mirror_hardly_count():
    found = weights(np.array([1000.0, 0.0]), np.array([1000.0, 1000.0]))
    assert found[1] < 0.01 < 0.99 < found[0]


def test_whole_batches_become_rare():
    batches = left = 0
    whole = []
    for number in range(60):
        mirrored = left == 0
        if mirrored:
            whole.append(number)
        batches, left = counts_after(batches, left, mirrored)
        assert batches == number + 1
    assert whole[:9] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert [b - a for a, b in itertools.pairwise(whole)] == [until_next(n) for n in whole[:-1]]


def test_the_count_of_batches_ends():
    assert counts_after(4 * LONGEST, 3, False) == (4 * LONGEST, 2)
