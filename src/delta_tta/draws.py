"""Random numbers that depend on a seed and on counts alone, so that a saved state goes on with the same."""

from __future__ import annotations

import numpy as np
from torch import Generator


def generator(seed: int, *counts: int) -> Generator:
    """Return a generator for this seed and these counts, such as the step.

    Torch's CPU generator reads the lower 32 bits of its seed only; so all of them are mixed into these.
    """
    return Generator().manual_seed(int(np.random.SeedSequence([seed, *counts]).generate_state(1)[0]))
