"""Streams: their properties, names, and use in a DataLoader."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

from delta_tta import StreamError
from delta_tta.streams import StreamSpec, continual, gradual, mixed, stream

LABELS = np.repeat(np.arange(5), 20)
SCENARIOS = {"IS+CB": {}, "DS+CB": {"rho": 0.5}, "IS+CI": {"pi": 0.1}, "DS+CI": {"rho": 0.5, "pi": 0.1}, "natural": {}}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_callers_random_state_is_not_touched_and_does_not_matter(scenario):
    digests = set()
    for seed in (1, 2):
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
        digests.add(stream(LABELS, scenario, **SCENARIOS[scenario]).digest)
        assert random.getstate() == before[0]
        assert np.random.get_state()[1].tolist() == before[1]
        assert torch.equal(torch.get_rng_state(), before[2])
    assert len(digests) == 1


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_seed_matters_where_anything_is_drawn(scenario):
    digests = {stream(LABELS, scenario, seed=seed, **SCENARIOS[scenario]).digest for seed in (2020, 2021)}
    assert len(digests) == (1 if scenario == "natural" else 2)


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


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (StreamSpec("IS+CB"), "IS+CB, seed 2020"),
        (StreamSpec("DS+CB", rho=1.0, seed=7), "DS+CB (ρ=1), seed 7"),
        (StreamSpec("DS+CI", rho=0.5, pi=0.05), "DS+CI (ρ=0.5, π=0.05), seed 2020"),
        (StreamSpec("DS+CB", rho=0.1, pieces=20), "DS+CB (ρ=0.1, J=20), seed 2020"),
        (StreamSpec("natural"), "natural"),
    ],
)
def test_a_spec_prints_as_the_paper_writes_it_and_parses_back(spec, text):
    assert str(spec) == text
    assert StreamSpec.parse(text) == spec
    assert hash(StreamSpec.parse(text)) == hash(spec)


def test_parse_takes_plain_letters_too():
    assert StreamSpec.parse("DS+CI (rho=0.5, pi=0.05)") == StreamSpec("DS+CI", rho=0.5, pi=0.05)
    assert StreamSpec.parse("DS+CI,rho=0.5,pi=0.05") == StreamSpec("DS+CI", rho=0.5, pi=0.05)
    assert StreamSpec.parse("DS+CB, rho=0.1, seed 7") == StreamSpec("DS+CB", rho=0.1, seed=7)


@pytest.mark.parametrize("text", ["", "DS+CB (ρ)", "DS+CB (ρ=x)", "DS+CB (z=1)", "IS+CB, seed x", "IS+CB seed 2020"])
def test_what_cannot_be_parsed_is_refused(text):
    with pytest.raises(StreamError):
        StreamSpec.parse(text)


@given(rho=st.floats(1e-3, 1e3), pi=st.floats(1e-3, 1), seed=st.integers(0, 2**32 - 1), pieces=st.integers(1, 99))
def test_any_spec_parses_back(rho, pi, seed, pieces):
    spec = StreamSpec("DS+CI", rho, pi, seed, pieces)
    assert StreamSpec.parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("labels", "scenario", "parameters", "teaches"),
    [
        (LABELS, "IS+CD", {}, "Did you mean 'IS+C"),
        (LABELS, "DS+CB", {}, "DS+CB needs `rho` (ρ), greater than 0, such as rho=0.1."),
        (LABELS, "DS+CB", {"rho": 0}, "greater than 0"),
        (LABELS, "DS+CB", {"rho": -1.0}, "greater than 0"),
        (LABELS, "DS+CB", {"rho": float("nan")}, "greater than 0"),
        (LABELS, "IS+CI", {"pi": 0}, "in (0, 1]"),
        (LABELS, "IS+CI", {"pi": 1.1}, "in (0, 1]"),
        (LABELS, "IS+CB", {"rho": 1.0}, "leave it out"),
        (LABELS, "DS+CB", {"rho": 1.0, "pieces": 0}, "at least 1"),
        (LABELS, "IS+CB", {"seed": -1}, "seed"),
        (LABELS.astype(float), "IS+CB", {}, "integers"),
        (LABELS > 1, "IS+CB", {}, "integers"),
        ([], "IS+CB", {}, "integers"),
        (LABELS.reshape(2, -1), "IS+CB", {}, "shape (2, 50)"),
        (LABELS - 1, "IS+CB", {}, "count from 0"),
        (LABELS[LABELS != 2], "DS+CB", {"rho": 1.0}, "none of [2]"),
        (LABELS[LABELS != 2], "IS+CI", {"pi": 0.5}, "none of [2]. Number"),
        ([0, 0, 3, 4_000_000_000], "DS+CB", {"rho": 1.0}, "none of [1, 2, 4, 5, 6] and others."),
    ],
)
def test_refusals(labels, scenario, parameters, teaches):
    with pytest.raises(StreamError) as error:
        stream(labels, scenario, **parameters)
    assert teaches in str(error.value)


def test_a_data_loader_follows_the_stream():
    made = stream(torch.as_tensor(LABELS), "DS+CB", rho=0.1)
    loader = DataLoader(TensorDataset(torch.arange(100)), sampler=made, batch_size=16)
    assert torch.cat([x for (x,) in loader]).tolist() == made.indices.tolist()
    assert len(made) == 100
    with pytest.raises(ValueError, match="read-only"):
        made.indices[0] = 1


def domain_of(versions, made):
    data = ConcatDataset([TensorDataset(torch.arange(100) + 1000 * i) for i in range(versions)])
    return [int(x) for (x,) in DataLoader(data, sampler=made, batch_size=None)]


def test_continual_visits_domain_after_domain():
    within = stream(LABELS, "DS+CB", rho=0.5)
    made = continual(within, ["fog", "snow", "frost"])
    assert domain_of(3, made) == [1000 * d + i for d in range(3) for i in within]


def test_mixed_is_the_same_samples_shuffled():
    within = stream(LABELS, "IS+CB")
    made, ordered = mixed(within, ["fog", "snow"]), continual(within, ["fog", "snow"])
    assert domain_of(2, made) != domain_of(2, ordered)
    assert sorted(domain_of(2, made)) == sorted(domain_of(2, ordered))
    assert mixed(within, ["fog", "snow"]).digest == made.digest != mixed(within, ["fog", "snow"], seed=1).digest


def test_gradual_rises_and_falls():
    within = stream(LABELS, "natural")
    made = gradual(within, ["fog", "snow"], severities=(1, 3, 5, 3, 1))
    assert made.domains == ("fog-1", "fog-3", "fog-5", "snow-1", "snow-3", "snow-5")
    visits = [made.domains[d] for d in made.which[:: len(within)]]
    assert visits == [f"{c}-{s}" for c in ("fog", "snow") for s in (1, 3, 5, 3, 1)]


def test_domains_need_names():
    within = stream(LABELS, "natural")
    for domains in ([], ["fog", "fog"]):
        with pytest.raises(StreamError, match="different names"):
            continual(within, domains)
