"""Random numbers by seed and counts."""

import itertools

import torch

from delta_tta.draws import generator


def test_seed_and_counts_all_matter():
    drawn = {k: tuple(torch.rand(4, generator=generator(*k)).tolist()) for k in itertools.product(range(6), range(6))}
    assert len(set(drawn.values())) == 36
    assert drawn[1, 2] == tuple(torch.rand(4, generator=generator(1, 2)).tolist())
    assert generator(2**32 - 1, 2**40).initial_seed() != generator(2**32 - 1, 0).initial_seed()
