"""Random numbers that a saved state goes on with: they depend on the seed and the step alone."""

from __future__ import annotations

from torch import Generator

SPREAD = 0x9E3779B1
"""Odd, so that no two seeds fall together; large, so that their steps do not meet."""


def numbers(seed: int, step: int) -> Generator:
    """Return the generator of a step.

    Examples:
        >>> import torch
        >>> torch.rand(2, generator=numbers(seed=0, step=3)).equal(torch.rand(2, generator=numbers(seed=0, step=3)))
        True
        >>> torch.rand(2, generator=numbers(seed=0, step=3)).equal(torch.rand(2, generator=numbers(seed=0, step=4)))
        False
    """
    # the generator of a CPU reads the lowest 32 bits of what it is seeded with, and no more
    return Generator().manual_seed((seed * SPREAD + step) % 2**32)
