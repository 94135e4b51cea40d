"""The loss of a batch: what the objective says of each sample, weighed and selected by the reweighting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ..objectives import Objective
from ..prediction import Prediction
from ..registry import State
from ..reweighting import Reweighting


@dataclass(frozen=True)
class Loss:
    """What is minimised at one batch.

    Attributes:
        value: the loss, with gradient.
        count: of the samples that train.
        selected: which they are, (B,); None for all.
        memory: what the objective remembers after the batch.
    """

    value: Tensor
    count: int
    selected: Tensor | None
    memory: State


def loss_of(
    prediction: Prediction,
    objective: Objective,
    memory: State,
    reweighting: Reweighting | None,
    weights_memory: State,
    parameters: Mapping[str, Tensor],
    *,
    whole_batch: bool,
    looked: State | None = None,
    among: Tensor | None = None,
) -> Loss:
    """Return lines 4 to 8 of the paper's Algorithm 1, around any objective.

    Args:
        prediction: of the samples of all ranks.
        objective: gives each sample a loss, and says which samples train.
        memory: what the objective remembers.
        reweighting: weighs them, and may leave some out.
        weights_memory: what the reweighting remembers.
        parameters: that train, by name, for penalties on them.
        whole_batch: divide by the whole batch, not by the samples that train.
        looked: what the objective has seen of this batch.
        among: the only samples that may train, (B,).
    """
    seen = {**memory, **looked} if looked else memory
    if reweighting is None:
        each, selected = objective.loss(prediction, seen)  # (B,)
        penalties = [objective.penalty(parameters)]
    else:
        each, selected = objective.loss(reweighting.adjusted(prediction, weights_memory), seen)
        weights = reweighting.weights(prediction, weights_memory)
        each = each if weights is None else each * weights
        selected = reweighting.select(prediction, selected, weights_memory)
        penalties = [objective.penalty(parameters), reweighting.penalty(prediction, weights_memory)]
    if among is not None:
        selected = among if selected is None else selected & among
    if selected is not None:
        each = each.masked_fill(~selected, 0)
    count = len(each) if selected is None else int(selected.sum())
    value = each.sum() / (len(each) if whole_batch else max(count, 1))
    for penalty in penalties:
        value = value if penalty is None else value + penalty
    return Loss(value, count, selected, objective.next_state(prediction, memory, selected))
