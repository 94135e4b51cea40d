"""How much each parameter matters to the source: the Fisher information that EATA (Niu et al. 2022) measures."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ..errors import InputError, SettingError
from ..losses import pseudo_label_cross_entropy
from ..prediction import Prediction
from .finite import finite
from .step import Updater


def show_source(updater: Updater, method: str, source: Iterable[Tensor] | None) -> None:
    """Let an objective that needs source images see them."""
    objective = updater.objective
    if objective is None or not objective.needs_source:
        return
    if source is None:
        raise SettingError(
            f"Method '{method}' measures on images of the training distribution how much each parameter matters. Give "
            f"some (2,000 are enough) in batches: adapt(model, '{method}', source=loader)."
        )
    batches = (source,) if isinstance(source, Tensor) else (x[0] if isinstance(x, (tuple, list)) else x for x in source)
    objective.hold(updater.adapted.source, fisher(updater, batches))


def fisher(updater: Updater, batches: Iterable[Tensor]) -> dict[str, Tensor]:
    """Return the mean over batches of the squared gradient of the loss on the model's own labels."""
    parameters = updater.adapted.parameters
    total = {name: torch.zeros_like(p) for name, p in parameters.items()}
    count = 0
    for x in batches:
        with updater.in_phase("observing"), torch.enable_grad():
            prediction = Prediction(updater.learnable(x))
        try:
            gradients = updater.gradients(pseudo_label_cross_entropy(prediction.log_p, prediction.label).mean())
        finally:
            updater.adapted.discard()
        for name, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                total[name] += gradient**2
        count += 1
    if not count:
        raise InputError("Expected at least one batch of source images, but there was none.")
    if not finite(list(total.values())):
        raise InputError("The gradients on the source images are not finite; look for NaN in the images.")
    return {name: value / count for name, value in total.items()}
