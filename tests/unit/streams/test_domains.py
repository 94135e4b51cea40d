"""Streams over several domains."""

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

from delta_tta import StreamError
from delta_tta.streams import continual, gradual, mixed, stream

LABELS = np.repeat(np.arange(5), 20)


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
