"""Whether what is about to be learnt is finite."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ..signals import Reason, Skip


def finite(values: Sequence[Tensor | None]) -> bool:
    """Whether all of it is."""
    flat = [value if value.dim() == 1 else value.flatten() for value in values if value is not None]
    return not flat or bool(torch.cat(flat).isfinite().all())


def not_finite(learnt: Mapping[str, Sequence[Tensor | None]]) -> Skip | None:
    """Return which of the named values are not, or None."""
    if finite(list(itertools.chain(*learnt.values()))):
        return None
    return Skip(Reason.NOT_FINITE, ", ".join(name for name, values in learnt.items() if not finite(values)))
