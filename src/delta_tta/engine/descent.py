"""The loss of a batch and its gradient; for objectives that ask for it, where the loss is sharpest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..objectives import Objective
from ..options import ObjectiveOptions
from ..prediction import Prediction
from ..registry import State
from .again import Again
from .loss import Loss, loss_of
from .optimizer import climbed

if TYPE_CHECKING:
    from .step import Updater


def descent(
    updater: Updater, objective: Objective, prediction: Prediction, again: Again
) -> tuple[Loss, list[Tensor | None]]:
    """Return the loss and its gradients, in the order of the parameters; no gradients where no sample trains."""
    looked = objective.look(again.x, prediction, again.on, updater.objective_memory) if objective.looks else None
    found = losses(updater, objective, prediction, looked)
    gradients = updater.gradients(found.value) if found.count else []
    parameters = updater.adapted.parameters
    higher = climbed(parameters, gradients, objective.sharpness) if objective.sharpness and gradients else None
    if higher is not None:
        with updater.adapted.wearing(higher):
            found = losses(updater, objective, Prediction(again.learnable()), looked, found.selected)
            gradients = updater.gradients(found.value) if found.count else []
    if objective.coasts and not gradients:
        gradients = [torch.zeros_like(p) for p in parameters.values()]
    return found, gradients


def losses(
    updater: Updater,
    objective: Objective,
    prediction: Prediction,
    looked: State | None = None,
    among: Tensor | None = None,
) -> Loss:
    """Return the loss of a batch.

    Args:
        updater: whose objective and reweighting remember something.
        objective: gives each sample a loss.
        prediction: of the batch.
        looked: what the objective has seen of it.
        among: the only samples that may train.
    """
    return loss_of(
        prediction,
        objective,
        updater.objective_memory,
        updater.reweighting,
        updater.reweighting_memory,
        updater.adapted.parameters,
        whole_batch=updater.settings.options(ObjectiveOptions).reduction == "batch",
        looked=looked,
        among=among,
    )
