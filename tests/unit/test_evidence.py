"""Evidence: how well answers foretell each other, against the formulas written out."""

import itertools
import math

import numpy as np
import pytest

from delta_tta.evidence import LONGEST, STAYS, TEMPERATURES, of_order, of_pairs, tempered, until_next


def log_p(seed, size=9, classes=5, strength=2.0):
    logits = strength * np.random.default_rng(seed).standard_normal((size, classes)).astype(np.float32)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def mean_over_grid(evidence):
    """log of the mean likelihood over all filters and none."""
    return math.log((sum(math.exp(e) for e in evidence) + 1) / (len(evidence) + 1))


def means(p):
    return p.mean(1)


def test_tempered_answers_are_powers():
    p = np.exp(log_p(0))
    for t, found in zip(TEMPERATURES, tempered(log_p(0)), strict=True):
        power = p ** (1 / t)
        assert np.allclose(found, power / power.sum(1, keepdims=True), atol=1e-6)


def test_pairs_are_the_formula():
    p, other = tempered(log_p(0)), tempered(log_p(1))
    q, grid = means(p), []
    for t, s in itertools.product(range(len(TEMPERATURES)), STAYS):
        total = 0.0
        for i in range(p.shape[1]):
            alike = sum(p[t, i, y] * other[t, i, y] / q[t, y] for y in range(p.shape[2]))
            total += math.log(1 + s * (alike - 1))
        grid.append(total)
    assert of_pairs(p, other, q) == pytest.approx(mean_over_grid(grid), rel=1e-4)


def test_order_is_a_hidden_markov_model():
    p = tempered(log_p(2))
    q, grid = means(p), []
    for t, s in itertools.product(range(len(TEMPERATURES)), STAYS):
        belief, total = q[t].astype(float), 0.0
        for i in range(p.shape[1]):
            ahead = s * belief + (1 - s) * q[t]
            seen = ahead * p[t, i] / q[t]
            total += math.log(seen.sum())
            belief = seen / seen.sum()
        grid.append(total)
    assert of_order(p, q) == pytest.approx(mean_over_grid(grid), rel=1e-4)


def answers(labels, wrong, seed, classes=10):
    rng = np.random.default_rng(seed)
    said = np.where(rng.random(len(labels)) < wrong, rng.integers(classes, size=len(labels)), labels)
    logits = 4.0 * np.eye(classes, dtype=np.float32)[said] + rng.standard_normal((len(labels), classes))
    return (logits - np.log(np.exp(logits).sum(1, keepdims=True))).astype(np.float32)


def test_fewer_errors_are_more_evidence():
    labels = np.random.default_rng(0).integers(10, size=256)
    found = []
    for wrong in (0.1, 0.3, 0.6, 1.0):
        p, other = tempered(answers(labels, wrong, 1)), tempered(answers(labels, wrong, 2))
        found.append(of_pairs(p, other, means(p)))
    assert found == sorted(found, reverse=True)
    assert found[0] > 100
    assert found[-1] < 10


def test_to_say_always_the_same_is_no_evidence():
    p, other = (tempered(answers(np.full(256, 3), 0.0, seed)) for seed in (1, 2))
    assert of_pairs(p, other, means(p)) < 10
    assert of_order(p, means(p)) < 10


def test_looks_become_rare():
    gaps = [until_next(batches) for batches in range(300)]
    assert gaps[:9] == [1, 1, 1, 1, 1, 1, 1, 1, 2]
    assert gaps == sorted(gaps)
    assert gaps[-1] == LONGEST
