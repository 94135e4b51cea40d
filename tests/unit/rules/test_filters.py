"""The filters over log-probabilities: evidence, weights and names of streams."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_tta.errors import InputError
from delta_tta.evidence import MEMORY, STAYS
from delta_tta.rules.answers import MeanAnswers
from delta_tta.rules.filters import (
    DOUBT,
    Beliefs,
    accumulated,
    filtered,
    filtered_beliefs,
    names_of,
    stays,
    weights_of,
)

SIZE, CLASSES = 16, 4


def answers(seed=0, size=SIZE, leading=(3,)):
    return np.random.default_rng(seed).dirichlet(np.ones(CLASSES), (*leading, size)).astype(np.float32)


@pytest.mark.parametrize("smooth", [True, False])
def test_a_model_that_fails_where_domains_take_turns_is_not_filtered(smooth):
    """In each of four domains it mostly says one class, whatever it sees; in the end that is known."""
    rng, log_p, found = np.random.default_rng(0), [], []
    for turn in range(24):
        logits = rng.normal(size=(80, 10)).astype(np.float32)
        logits[:, turn % 4] += 2.5
        log_p.append(logits - np.log(np.exp(logits).sum(1, keepdims=True)))
        found.append(rng.normal(1.1 * (turn % 4), 0.2, 80).astype(np.float32))
    changes = {}
    for told in (True, False):
        beliefs, changes[told] = Beliefs(), 0.0
        for own, sharp in zip(log_p, found, strict=True):
            correction, beliefs = filtered(own, beliefs, None, smooth, sharp if told else None)
            changes[told] = float(((own + correction).argmax(1) != own.argmax(1)).mean())
    assert changes[True] < 0.1
    assert changes[False] > 0.15  # with one mean over all domains


def plain_markov(ratio, q, start, stay):
    """Filtered and smoothed beliefs with the whole matrix of transitions, sample by sample."""
    classes = len(start)
    move = stay * np.eye(classes) + (1 - stay) * np.tile(q, (classes, 1))
    forward, belief = [], start
    for own in ratio:
        belief = belief @ move * own
        belief = belief / belief.sum()
        forward.append(belief)
    backward = [np.ones(classes)]
    for own in ratio[:0:-1]:
        backward.insert(0, move @ (own * backward[0]))
    both = np.array(forward) * np.array(backward)
    return np.array(forward), both / both.sum(1, keepdims=True)


@given(st.integers(0, 1000), st.integers(1, 8), st.floats(0, 0.99))
def test_beliefs_are_those_of_a_hidden_markov_model(seed, size, stay):
    draw = np.random.default_rng(seed)
    ratio = draw.uniform(0.1, 3, (1, size, 4)).astype(np.float32)
    q, start = draw.dirichlet(np.ones(4), (2, 1)).astype(np.float32)
    stays_for = np.array([[stay]], np.float32)
    forward, smooth = plain_markov(ratio[0].astype(float), q[0].astype(float), start[0].astype(float), stay)
    found = [filtered_beliefs(ratio, q[None], start, stays_for, both)[:, 0] for both in (False, True)]
    assert found[0] == pytest.approx(forward, abs=1e-4)
    assert found[1] == pytest.approx(smooth, abs=1e-4)


def test_evidence_is_added_up_and_forgotten_over_its_memory():
    news = np.random.default_rng(0).normal(size=(6, 2, 3)).astype(np.float32)
    start = np.full((2, 3), 50, np.float32)
    found = accumulated(start, news)
    for t in range(6):
        keep = np.exp(-np.arange(t + 1)[::-1, None, None] / MEMORY)
        expected = np.exp(-(t + 1) / MEMORY) * start + (keep * news[: t + 1]).sum(0)
        assert found[t] == pytest.approx(expected, abs=1e-4)


def test_weights_are_likelihoods_against_leaving_the_answers_alone():
    evidence = np.array([[[DOUBT, 0.0], [DOUBT - 1, -900.0]]], np.float32)
    scores = np.exp([DOUBT, DOUBT, 0.0, DOUBT - 1, -900.0])
    assert weights_of(evidence)[0] == pytest.approx(scores / scores.sum(), abs=1e-6)
    assert weights_of(np.full((1, 2, 2), 5000, np.float32)).sum() == pytest.approx(1)


def test_how_likely_a_class_is_to_stay_is_the_mean_over_the_filters():
    assert stays(Beliefs()) == 0
    known, _ = MeanAnswers().after(answers(), None, 1.0)
    evidence = np.zeros((3, 4), np.float32)
    evidence[1, 2] = 100
    assert stays(Beliefs(known, evidence)) == pytest.approx(float(STAYS[2]))
    assert stays(Beliefs(known)) < 0.01


def test_names_of_streams():
    assert names_of("left", 3) == ["left"] * 3
    assert names_of(("a", 1, "a"), 3) == ["a", 1, "a"]
    with pytest.raises(InputError, match="one `stream` for each of 3 samples, but got 2"):
        names_of(["a", "b"], 3)
    for name in (1.5, None, ("a",)):
        with pytest.raises(InputError, match="a text or an integer"):
            names_of([name] * 2, 2)


@pytest.mark.parametrize("smooth", [True, False])
def test_what_was_known_before_a_batch_is_not_changed(smooth):
    log_p = np.log(answers(leading=())).astype(np.float32)
    _, before = filtered(log_p, Beliefs(), ["a"] * SIZE, smooth)
    kept = before.evidence.copy(), before.answers.sums.copy(), before.beliefs["a"].copy()
    one, _ = filtered(log_p, before, ["a", "b"] * (SIZE // 2), smooth)
    again, _ = filtered(log_p, before, ["a", "b"] * (SIZE // 2), smooth)
    assert np.array_equal(one, again)
    assert list(before.beliefs) == ["a"]
    for old, now in zip(kept, (before.evidence, before.answers.sums, before.beliefs["a"]), strict=True):
        assert np.array_equal(old, now)
