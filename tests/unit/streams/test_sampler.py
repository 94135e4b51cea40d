"""A stream: what determines it, what it refuses, and its use in a DataLoader."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from delta_tta import StreamError
from delta_tta.streams import stream

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
