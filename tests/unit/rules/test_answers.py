"""The mean answer by sharpness."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_tta.rules.answers import LEVELS, WIDTH, MeanAnswers, fits

SIZE, CLASSES = 16, 4


def answers(seed=0, size=SIZE, leading=(3,)):
    return np.random.default_rng(seed).dirichlet(np.ones(CLASSES), (*leading, size)).astype(np.float32)


sharpness = st.lists(st.floats(-50, 50, width=32), min_size=SIZE, max_size=SIZE).map(lambda x: np.array(x, np.float32))


@given(sharpness, st.integers(0, 100))
def test_each_sample_counts_for_the_two_levels_next_to_it(found, seed):
    p = answers(seed)
    known, _ = MeanAnswers().after(p, found, 1.0)
    sums, counts = np.zeros((3, LEVELS, CLASSES)), np.zeros(LEVELS)
    for row, at in enumerate(found.astype(float) / WIDTH):
        for level in (math.floor(at), math.floor(at) + 1):
            share = 1 - abs(at - level)
            sums[:, level % LEVELS] += share * p[:, row]
            counts[level % LEVELS] += share
    assert known.sums == pytest.approx(sums, abs=1e-3)
    assert known.counts == pytest.approx(counts, abs=1e-3)
    assert known.samples == pytest.approx(SIZE, rel=1e-5)


@given(sharpness, st.integers(0, 100), st.sampled_from([0.0, 2.0, 768.0]))
def test_it_is_a_distribution_for_each_sample(found, seed, uniform):
    known, places = MeanAnswers().after(answers(seed), found, 1.0)
    q = known.at(places, uniform)
    assert q.shape in ((3, SIZE, CLASSES), (3, 1, CLASSES))
    assert q.sum(2) == pytest.approx(1, abs=1e-4)
    assert (q >= 0).all()


@pytest.mark.parametrize("found", [None, np.full(SIZE, 1.3, np.float32)])
@pytest.mark.parametrize("leading", [(3,), (5, 3)])
def test_where_all_images_are_alike_it_is_the_mean_of_all(found, leading):
    known, total, count = MeanAnswers(), 0.0, 0.0
    for seed in range(4):
        p = answers(seed, leading=leading)
        known, places = known.after(p, found, 0.9)
        total, count = 0.9 * total + p.sum(-2), 0.9 * count + SIZE
    expected = (total + 8 / CLASSES) / (count + 8)
    assert known.at(places, 8.0) == pytest.approx(expected[..., None, :], abs=1e-5)


def test_what_is_usual_in_one_domain_is_not_usual_in_another():
    dull, sharp = np.zeros(SIZE, np.float32), np.full(SIZE, 2.0, np.float32)
    known = MeanAnswers()
    always = np.zeros((2, 1, SIZE, CLASSES), np.float32)
    always[0, ..., 1], always[1, ..., 2] = 1, 1
    for _ in range(20):
        known, _ = known.after(always[0], dull, 1.0)
        known, places = known.after(always[1], sharp, 1.0)
    q = known.at(places, 8.0)[0, 0]
    assert q[2] > 0.9
    assert q[1] < 0.1


def test_the_shapes_of_a_saved_state():
    known, _ = MeanAnswers().after(answers(), None, 1.0)
    shapes = known.sums.shape, known.counts.shape
    assert fits(*shapes, (3,), CLASSES)
    assert not fits(*shapes, (3,), CLASSES + 1)
    assert not fits(*shapes, (2,), CLASSES)
    assert fits(MeanAnswers().sums.shape, MeanAnswers().counts.shape, (3,), CLASSES)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_sharpness_that_is_not_finite_counts_as_none(bad):
    p = np.array([[[0.2, 0.8]]], np.float32)
    known, at = MeanAnswers().after(p, np.array([bad], np.float32), keep=1.0)
    none, at_none = MeanAnswers().after(p, None, keep=1.0)
    assert at.tolist() == at_none.tolist() == [0.0]
    assert np.array_equal(known.sums, none.sums)
    assert np.array_equal(known.counts, none.counts)
