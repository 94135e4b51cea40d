"""Mixtures and averages in numpy are those of the norm layers in torch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from delta_tta.edge.averages import mixture, moved
from delta_tta.norms.anchored import anchored_statistics, pooled_update
from delta_tta.rules.shares import OWN, SHARES

RATES = (1.0, 0.5, 0.25, 0.125, 1.0)


def statistics(seed, *shape):
    draw = np.random.default_rng(seed)
    return draw.normal(size=shape).astype(np.float32), draw.uniform(0.5, 2, shape).astype(np.float32)


def close(one, other):
    return all(np.allclose(a, np.asarray(b), atol=1e-5) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("slot", range(1, OWN))
def test_a_mixture_is_that_of_an_anchored_layer(slot):
    source, averages = statistics(0, 4), statistics(1, OWN - 1, 4)
    own = tuple(one[slot - 1] for one in averages)
    expected = anchored_statistics(*map(torch.from_numpy, (*source, *own)), SHARES[slot])
    assert close(mixture(source, averages, slot), expected)


@given(st.integers(0, 1000), st.sets(st.integers(1, OWN - 1), min_size=1))
def test_averages_move_by_the_pooled_update_and_only_where_they_measured(seed, slots):
    averages = statistics(seed, OWN - 1, 3)
    before = tuple(one.copy() for one in averages)
    measured = {slot: statistics(seed + slot, 3) for slot in sorted(slots)}
    after = moved(averages, measured, RATES)
    for slot in range(1, OWN):
        own = tuple(one[slot - 1] for one in averages)
        expected = own
        if slot in slots:
            expected = pooled_update(*map(torch.from_numpy, (*own, *measured[slot])), RATES[slot])
        assert close([one[slot - 1] for one in after], expected)
    assert close(averages, before)  # the state before a batch stays as it was


def test_the_first_batch_starts_all_slots_and_each_moves_by_its_own():
    first, second = statistics(0, 3), statistics(1, 3)
    means, stds = moved(None, {1: first, 3: second}, RATES)
    assert close((means[0], stds[0]), first)
    assert close((means[1], stds[1]), first)
    expected = pooled_update(*map(torch.from_numpy, (*first, *second)), RATES[3])
    assert close((means[2], stds[2]), expected)


def test_the_slot_of_the_batch_s_own_statistics_has_no_averages():
    averages = statistics(0, OWN - 1, 3)
    assert moved(averages, {OWN: statistics(1, 3)}, RATES) is averages
    assert moved(None, {}, RATES) is None
