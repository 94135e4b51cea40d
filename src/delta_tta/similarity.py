"""The similarity filter of ETA (Niu et al. 2022): samples that say what was said before need not train again."""

from __future__ import annotations

import torch
from torch import Tensor

from .losses import unlike_average
from .prediction import Prediction
from .registry import State

KEPT = 0.9
"""Share of the old average that stays."""


def differs(prediction: Prediction, selected: Tensor | None, state: State, margin: float) -> Tensor:
    """Return which of the selected samples have |cos(m, p)| < margin; all of them while there is no average m yet."""
    chosen = _all_if_none(prediction, selected)
    if "average" not in state:
        return chosen
    return chosen & unlike_average(prediction.p, state["average"], margin)


def next_average(prediction: Prediction, kept: Tensor | None, state: State) -> State:
    """Return m: the mean p of the kept samples, then 0.9 m + 0.1 mean p; as it was where none was kept."""
    chosen = _all_if_none(prediction, kept)
    if not bool(chosen.any()):
        return state
    mean = prediction.p[chosen].mean(0)
    return {"average": torch.lerp(mean, state["average"], KEPT) if "average" in state else mean}


def _all_if_none(prediction: Prediction, selected: Tensor | None) -> Tensor:
    return torch.ones_like(prediction.label, dtype=torch.bool) if selected is None else selected
