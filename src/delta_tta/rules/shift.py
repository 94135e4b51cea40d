"""How far a batch lies from the source's statistics, and its samples apart; `norms/shift.py` has the formulas.

The functions take arrays of numpy or tensors of torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

SUSPICIOUS = 0.12
"""Mean d per channel, in the adapted model, of a batch about which the source is asked."""
FAR = 0.3
"""Mean d per channel, in the source, above which a batch may be blank."""


class Shift(NamedTuple):
    """Of one batch.

    Attributes:
        distance: Σ d, of the batch from the source.
        variety: Σ v, of its samples around their mean; it does not depend on the source.
        channels: how many there are in the sums.
    """

    distance: float
    variety: float
    channels: int

    def shows_nothing(self, alike: float) -> bool:
        """Whether the batch is far from the source and its samples are alike, as frames of a covered lens are.

        Args:
            alike: the share of the variance by which samples must differ.
        """
        return self.distance > FAR * self.channels and self.variety < alike * self.channels


def terms(m: Any, own: Any, eps: float) -> list[Any]:
    """Return what each sample adds to the sums of `shift_of_sums`, (B, C) each.

    Args:
        m: means of the samples, from the source's mean on, (B, C).
        own: their variances, (B, C).
        eps: of the layer.
    """
    s = (own + eps) ** 0.5
    return [m * 0 + 1, m, m**2, own + m**2, s, s**2]


def shift_of_sums(sums: Any, std: Any, eps: float) -> Shift:
    """Return the shift of one layer.

    Args:
        sums: the terms, summed over the samples, (6, C).
        std: the source's, (C,).
        eps: of the layer.
    """
    count, m, mm, q, s, ss = sums
    mean = m / count
    own = ((q / count - mean**2).clip(min=0) + eps) ** 0.5
    between = (mm / count - mean**2 + ss / count - (s / count) ** 2).clip(min=0) * count / (count - 1).clip(min=1)
    return Shift(distance((mean, own), (mean * 0, std)), float((between / own**2).sum()), len(std))


def distance(one: tuple[Any, Any], source: tuple[Any, Any]) -> float:
    """Return Σ d, given means and standard deviations of all channels."""
    (mean, std), (source_mean, source_std) = one, source
    apart = (mean - source_mean) ** 2 + (std - source_std) ** 2
    return float((apart / (std**2 + source_std**2)).sum())
