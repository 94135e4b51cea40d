"""How far a batch lies from the source, channel by channel as written, in numpy and in torch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from delta_tta.rules.shift import FAR, Shift, distance, shift_of_sums, terms

EPS = 1e-5


def features(seed, samples=6, channels=3, values=10):
    """Values of each sample and channel, (B, C, n), and the source's mean and standard deviation."""
    draw = np.random.default_rng(seed)
    means, spread = draw.normal(size=(channels, 1)), 0.5 + draw.random((samples, channels, 1))
    x = draw.normal(means, spread, (samples, channels, values))
    return x, draw.normal(size=channels), 0.5 + draw.random(channels)


def written_out(x, mean, std):
    far = varied = 0.0
    for c in range(x.shape[1]):
        own = np.sqrt(x[:, c].var() + EPS)
        far += ((x[:, c].mean() - mean[c]) ** 2 + (own - std[c]) ** 2) / (std[c] ** 2 + own**2)
        means, stds = x[:, c].mean(1), np.sqrt(x[:, c].var(1) + EPS)
        varied += (means.var(ddof=1) + stds.var(ddof=1)) / own**2
    return far, varied, x.shape[1]


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
@given(st.integers(0, 1000), st.integers(2, 9))
def test_it_is_the_formula(kind, seed, samples):
    x, mean, std = features(seed, samples)
    own = kind(x.mean(2) - mean), kind(x.var(2))
    added = terms(*own, EPS)
    sums = [one.sum(0) for one in added]
    found = shift_of_sums(torch.stack(sums) if kind is torch.from_numpy else np.stack(sums), kind(std), EPS)
    assert tuple(found) == pytest.approx(written_out(x, mean, std), rel=1e-6)


def test_samples_that_are_all_the_same_do_not_vary_and_one_alone_does_not_either():
    x, mean, std = features(0)
    for samples in (np.repeat(x[:1], 5, 0), x[:1]):
        sums = np.stack([one.sum(0) for one in terms(samples.mean(2) - mean, samples.var(2), EPS)])
        assert shift_of_sums(sums, std, EPS).variety == pytest.approx(0, abs=1e-9)


def test_the_distance_is_0_only_at_the_source_and_at_most_2_a_channel():
    mean, std = np.zeros(4), np.ones(4)
    assert distance((mean, std), (mean, std)) == 0
    assert distance((mean + 1, std), (mean, std)) == pytest.approx(4 / 2)
    assert distance((mean, 3 * std), (mean, std)) == pytest.approx(4 * 4 / 10)
    assert distance((mean, 1e9 * std), (mean, std)) == pytest.approx(4)


@pytest.mark.parametrize(
    ("far", "varied", "blank"), [(1.01, 0.9, True), (0.99, 0.9, False), (1.01, 1.1, False), (0.5, 1.5, False)]
)
def test_a_batch_shows_nothing_where_it_is_far_and_its_samples_are_alike(far, varied, blank):
    assert Shift(far * FAR * 8, varied * 0.05 * 8, 8).shows_nothing(0.05) == blank
