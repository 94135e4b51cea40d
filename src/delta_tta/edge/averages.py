"""The averages of the stream's statistics by slot, in numpy; `norms/anchored.py` has the formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..rules.shares import OWN, SHARES
from .network import Statistics


def mixture(source: Statistics, averages: Statistics, slot: int) -> Statistics:
    """Return (1 − m) μ_s + m μ_e and (1 − m) σ_s + m σ_e of a slot."""
    share = np.float32(SHARES[slot])
    mean, std = (one + share * (stream[slot - 1] - one) for one, stream in zip(source, averages, strict=True))
    return mean, std


def moved(averages: Statistics | None, measured: Mapping[int, Statistics], rates: Sequence[float]) -> Statistics | None:
    """Return the averages after a batch, (slots − 2, C) each.

    Args:
        averages: before it; None: not started.
        measured: μ_b and σ_b of the slots that measured it; the last has no averages.
        rates: how far each slot follows.
    """
    measured = {slot: found for slot, found in measured.items() if slot != OWN}
    if not measured:
        return averages
    start = next(iter(measured.values()))
    means, stds = (one.repeat(OWN - 1, 0) for one in (start[0][None], start[1][None]))
    if averages is not None:
        means, stds = averages[0].copy(), averages[1].copy()
    for slot, (mean_b, std_b) in measured.items():
        rate, apart = np.float32(rates[slot]), mean_b - means[slot - 1]
        variance = (1 - rate) * (stds[slot - 1] ** 2 + rate * apart**2) + rate * std_b**2
        means[slot - 1] += rate * apart
        stds[slot - 1] = np.sqrt(variance)
    return means, stds
