"""Moments of parts put together, and what processes need; tests/distributed runs several of them."""

import pytest
import torch

from delta_tta import SettingError
from delta_tta.distributed import Ranks, merged_moments


def test_the_moments_of_parts_are_those_of_the_whole():
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1000
    parts = [x[:3], x[3:3], x[3:20], x[20:]]
    counts = torch.tensor([[float(len(part))] for part in parts], dtype=torch.float64)
    means = torch.stack([part.mean(0) if len(part) else torch.zeros(4).double() for part in parts])
    squares = torch.stack([((part - m) ** 2).sum(0) for part, m in zip(parts, means, strict=True)])
    mean, var = merged_moments(counts, means, squares)
    assert torch.allclose(mean, x.mean(0), rtol=1e-14)
    assert torch.allclose(var, x.var(0, correction=0), rtol=1e-9)


def test_there_must_be_a_group_of_processes():
    with pytest.raises(SettingError, match=r"init_process_group\(\) first"):
        Ranks()
