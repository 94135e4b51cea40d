"""The estimate of the accuracy: against streams whose accuracy is known, and the formulas in closed form."""

import math

import numpy as np
import pytest

from delta_tta.rules.accuracy import (
    BLOCK,
    LEAST,
    MEMORY,
    RAREST,
    TEMPERATURE,
    UNKNOWN,
    Comparisons,
    confidence_of,
    until_next_block,
)

CLASSES = 10


def answers(labels, right, confidence, seed):
    """Log-probabilities of a model that is right so often and as sure as said after tempering."""
    g = np.random.default_rng(seed)
    said = np.where(g.random(len(labels)) < right, labels, (labels + g.integers(1, CLASSES, len(labels))) % CLASSES)
    p = np.full((len(labels), CLASSES), (1 - confidence) / (CLASSES - 1))
    p[np.arange(len(labels)), said] = confidence
    log_p = TEMPERATURE * np.log(p)
    return (log_p - np.log(np.exp(log_p).sum(1, keepdims=True))).astype(np.float32)


def labels(count, run=1, seed=0):
    return np.repeat(np.random.default_rng(seed).integers(0, CLASSES, -(-count // run)), run)[:count]


def compared(true, own, other, count=16, source=None):
    known = Comparisons()
    source = other.argmax(1) if source is None else source
    for start in range(0, count * BLOCK, BLOCK):
        part = slice(start, start + BLOCK)
        known = known.after(own[part], other[part], own[part], source[part])
    return known


@pytest.mark.parametrize("right", [0.3, 0.6, 0.9])
def test_an_honest_model_is_believed(right):
    true = labels(16 * BLOCK)
    own, other = answers(true, right, right, 1), answers(true, 0.2, 0.2, 2)
    found = compared(true, own, other).accuracy(confidence_of(own), True)
    assert found.estimate == pytest.approx(right, abs=0.03)
    assert found.low < right < found.high
    assert found.source < found.estimate


def test_a_view_that_tells_more_scores_the_answers_of_another():
    true = labels(16 * BLOCK)
    own, other = answers(true, 0.3, 0.6, 1), answers(true, 0.9, 0.9, 2)  # one too sure of itself, one that is honest
    known = compared(true, own, other)
    assert known.best == 1
    found = known.accuracy(known.confidence, True)
    assert found.estimate == pytest.approx(0.3, abs=0.05)
    assert found.source == pytest.approx(0.9, abs=0.03)


def test_neighbours_in_time_show_what_confidence_hides():
    true = labels(16 * BLOCK, run=16)
    own = answers(true, 0.5, 0.9, 1)  # far too sure
    known = compared(true, own, answers(true, 0.2, 0.3, 2))
    assert known.accuracy(known.confidence, True).estimate == pytest.approx(0.5, abs=0.06)


def test_the_source_is_better_after_enough_samples_and_only_then():
    true = labels(16 * BLOCK)
    bad, good = answers(true, 0.5, 0.5, 1), answers(true, 0.8, 0.8, 2)
    blocks = math.ceil(LEAST / BLOCK)
    assert not compared(true, bad, good, blocks - 1).worse
    assert compared(true, bad, good).worse
    assert not compared(true, good, bad).worse
    assert not compared(true, good, good).worse


def test_the_closed_forms():
    p = np.array([[0.7, 0.2, 0.1]], np.float32)
    power = p ** (1 / TEMPERATURE)
    assert confidence_of(np.log(p)) == pytest.approx((power / power.sum()).max(), abs=1e-6)
    true = labels(2 * BLOCK)
    own = answers(true, 0.6, 0.6, 1)
    known = compared(true, own, own, 2)
    assert known.compared == pytest.approx(BLOCK * (1 + math.exp(-BLOCK / MEMORY)))
    assert known.best == 0
    found = known.accuracy(known.confidence + 0.1, False)
    assert found.source is None
    assert found.estimate == pytest.approx(known.scores[0, 0] + 0.1)
    half = UNKNOWN + 2 * math.sqrt(found.estimate * (1 - found.estimate) / known.compared)
    assert (found.low, found.high) == pytest.approx((found.estimate - half, min(found.estimate + half, 1)))
    assert known.accuracy(known.confidence + 2, False).estimate == 1
    assert known.accuracy(known.confidence - 2, False)[:2] == (0, 0)


def test_blocks_are_compared_less_and_less_often():
    assert until_next_block(BLOCK) == 0
    assert until_next_block(16 * BLOCK) == 3 * BLOCK
    assert until_next_block(10**6) == (RAREST - 1) * BLOCK


def test_nothing_that_was_known_is_changed():
    true = labels(BLOCK)
    own = answers(true, 0.6, 0.6, 1)
    known = compared(true, own, own, 1)
    before = (known.scores.copy(), known.views[0].answers.sums.copy(), known.views[0].evidence.copy())
    known.after(own, own, own, own.argmax(1))
    after = (known.scores, known.views[0].answers.sums, known.views[0].evidence)
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
