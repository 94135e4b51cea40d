"""Random numbers by seed and step."""

import itertools

import torch

from delta_tta.engine.draws import numbers


def test_seed_and_step_both_matter():
    drawn = {k: tuple(torch.rand(4, generator=numbers(*k)).tolist()) for k in itertools.product(range(6), range(6))}
    assert len(set(drawn.values())) == 36
    assert drawn[1, 2] == tuple(torch.rand(4, generator=numbers(1, 2)).tolist())
