"""The order of the samples: permutations, frequencies and runs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from delta_tta.streams import stream

LABELS = np.repeat(np.arange(5), 20)


@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=60),
    rho=st.floats(0.01, 10),
    pieces=st.integers(1, 12),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_balanced_stream_is_a_permutation(labels, rho, pieces, seed):
    _, labels = np.unique(labels, return_inverse=True)
    for made in (stream(labels, "IS+CB", seed=seed), stream(labels, "DS+CB", rho=rho, seed=seed, pieces=pieces)):
        assert sorted(made) == list(range(len(labels)))


@given(pi=st.floats(0.01, 1), seed=st.integers(0, 1000))
def test_an_imbalanced_stream_has_the_frequencies_asked_for(pi, seed):
    made = stream(LABELS, "IS+CI", pi=pi, seed=seed)
    counts = np.bincount(LABELS[made.indices], minlength=5)
    shares = np.array([pi ** (c / 4) for c in range(5)])
    assert counts.tolist() == (np.floor(shares / shares.sum() * 100).astype(int) + 1).tolist()
    dependent = stream(LABELS, "DS+CI", rho=1.0, pi=pi, seed=seed)
    assert sorted(dependent) == sorted(made)


def test_inside_a_piece_a_class_is_one_run_and_small_rho_means_long_runs():
    def changes(rho, **kwargs):
        order = LABELS[stream(LABELS, "DS+CB", rho=rho, **kwargs).indices]
        return int((np.diff(order) != 0).sum())

    assert changes(1.0, pieces=1) == 4
    assert changes(0.01) < changes(1.0) < changes(100.0) < 50
    assert changes(100.0) <= 10 * 5
