"""Prior correction (Marsden, Döbler, Yang 2024): a class that fills the batch is the likelier answer to each sample.

With p̄ the mean prediction of the batch, (K,), and γ = max(1/B, 1/K) / max p̄,

    prior = (p̄ + γ) / (1 + γ K)          the answer is logits · prior.

The smoothing by γ keeps small batches from ruling classes out. The published program multiplies the logits, not the
probabilities, and so does this.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..registry import component
from ..tensors import at_least_float32
from .base import Postprocess


@component(
    "prior-correction", "postprocess", "multiply the logits by the smoothed mean prediction of the batch", part=True
)
class PriorCorrection(Postprocess):
    """Remembers nothing: the prior is that of the batch."""

    compares = True
    synchronises = True

    def __call__(self, x: Tensor, logits: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the corrected logits, (B, K); with several processes B counts the samples of all."""
        p = at_least_float32(logits).softmax(1)
        p = p if self.ranks is None else self.ranks.join(p)
        return (logits * smoothed_prior(p)).to(logits.dtype) if len(p) else logits


def smoothed_prior(p: Tensor) -> Tensor:
    """Return the prior of the classes, (K,), from the predictions of a batch, (B, K)."""
    mean = p.mean(0)
    smooth = max(1 / p.shape[0], 1 / p.shape[1]) / mean.max()
    return (mean + smooth) / (1 + smooth * p.shape[1])
