"""The choice of the share: what is counted, how far averages follow, and when candidates are compared."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_tta.evidence import LONGEST
from delta_tta.rules.domain import LEAST, Domain
from delta_tta.rules.shares import BATCH, DOUBT, OWN, PRIOR, SHARES, Memory, best_slot

SLOTS = len(SHARES)


def log_p(labels, sure=4.0, classes=5):
    logits = sure * np.eye(classes, dtype=np.float32)[list(labels)]
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


@given(st.lists(st.floats(-50, 50), min_size=SLOTS, max_size=SLOTS))
def test_the_best_candidate_answers_where_it_is_clearly_ahead_of_the_source(evidence):
    slot = best_slot(evidence)
    best = max(evidence)
    assert slot == 0 or (evidence[slot] == best and best - evidence[0] > DOUBT)
    assert best - evidence[0] <= DOUBT or slot != 0


def test_where_nothing_is_learnt_the_batch_s_own_statistics_do_not_answer():
    evidence = (0.0, 10.0, 20.0, 15.0, 30.0)
    memory = Memory(slot=best_slot(evidence), evidence=evidence)
    assert (memory.slot, memory.steady) == (OWN, 2)
    assert Memory(slot=3, evidence=evidence).steady == 3


def test_one_evidence_is_added_to_another_which_is_slowly_forgotten():
    """The evidence of two equal batches is (1 + e^(-B/256)) that of one, but for the mean answers that change."""
    said = [log_p([0] * 8 + [1] * 8)] * SLOTS
    first = Memory().compared(said, None, None)
    assert len(set(first.evidence)) == 1
    assert first.evidence[0] > 0
    known = replace(first, evidence=(100.0,) * SLOTS)
    second = known.compared(said, None, None)
    fresh = replace(first, evidence=(0.0,) * SLOTS).compared(said, None, None)
    assert second.evidence[0] - fresh.evidence[0] == pytest.approx(100 * np.exp(-16 / 256))
    assert second.prior == pytest.approx(PRIOR * np.exp(-2 * 16 / 2000))


def test_agreement_with_mirror_images_is_evidence_and_disagreement_is_none():
    labels = list(np.random.default_rng(0).integers(0, 5, 64))
    said = [log_p(labels)] * SLOTS
    other = [log_p([(label + 1) % 5 for label in labels])] * SLOTS
    agreed = said[:2] + other[:1] + said[:2]
    found = Memory().compared(said, agreed, None)
    assert found.evidence[1] > found.evidence[2]
    assert found.evidence[0] == found.evidence[1] == found.evidence[4]


def test_what_is_not_finite_decides_nothing_but_when_to_look_again():
    said = [log_p([0, 1, 2])] * SLOTS
    broken = [*said[:2], np.full_like(said[0], np.nan), *said[:2]]
    before = Memory(slot=1, batches=40, due=40)
    for pair in ((broken, None), (said, broken)):
        assert before.compared(*pair, None) == replace(before, due=before.compared(said, None, None).due)


def test_candidates_are_compared_at_every_batch_until_there_are_enough_samples():
    def due(batches, size):
        return Memory(batches=batches).compared([log_p([0] * size)] * SLOTS, None, None).due - batches

    assert due(10, 16) == 1  # of PRIOR / 2 samples
    assert due(40, 16) == 10
    assert due(40, 1) == 1
    assert due(10_000, 64) == LONGEST
    assert Memory(batches=4, due=5).compares is False
    assert Memory(batches=5, due=5).compares is True


@pytest.mark.parametrize(
    ("size", "slot", "due", "half"), [(32, 1, 9, True), (31, 1, 9, False), (64, OWN, 9, False), (64, 1, 3, False)]
)
def test_half_of_a_large_batch_is_measured_between_comparisons(size, slot, due, half):
    assert Memory(slot=slot, batches=3, due=due).measures_half(size) == half


def test_averages_follow_by_the_size_of_the_batch_and_what_they_missed():
    memory = Memory(batches=20, updates=(20, 20, 9, 3, 0), last=(20, 20, 20, 11, 0))
    rates = memory.rates(BATCH, 0.9)
    assert rates == pytest.approx((0.1, 0.1, 1 / 10, 1 - 0.9**10, 1.0))
    assert memory.rates(BATCH / 4, 0.9)[1] == pytest.approx(max(1 / 21, 1 - 0.9**0.25))
    assert memory.rates(10 * BATCH, 0.9) == rates


def test_only_the_slots_that_met_a_batch_are_counted():
    memory = Memory(batches=7, updates=(7, 5, 5, 5, 5), last=(7, 5, 5, 5, 5)).after([0, 3])
    assert (memory.batches, memory.updates, memory.last) == (8, (8, 5, 5, 6, 5), (8, 5, 5, 8, 5))


def test_a_new_domain_begins_everything_anew_and_a_batch_without_sharpness_none():
    memory = Memory(slot=3, batches=9, evidence=(0.0, 1.0, 2.0, 9.0, 0.0))
    for _ in range(LEAST):
        memory, begins = memory.with_sharpness(np.zeros(3, np.float32))
        assert not begins
    assert memory.slot == 3
    assert memory.with_sharpness(None) == (memory, False)
    anew, begins = memory.with_sharpness(np.full(3, 2, np.float32))
    assert begins
    assert (anew.slot, anew.batches, anew.evidence) == (0, 0, (0.0,) * SLOTS)
    assert anew.domain.batches == 1
    assert anew.domain.mean.tolist() == [2, 2, 2]
    assert Domain().batches == 0
