"""What the model says about one batch, in the forms that objectives and reweightings ask for."""

from __future__ import annotations

from functools import cached_property

from torch import Tensor

from .losses import MINIMUM as MINIMUM
from .losses import entropy
from .tensors import at_least_float32


class Prediction:
    """Probabilities, labels and entropies of one batch of logits (B, K), each computed once.

    Half-precision logits are read in float32. `log_p` and `entropy` carry gradients; `p` and `label` do not.
    """

    def __init__(self, logits: Tensor) -> None:
        self.logits = at_least_float32(logits)

    @property
    def classes(self) -> int:
        """K."""
        return self.logits.shape[1]

    @cached_property
    def log_p(self) -> Tensor:
        """Log p, (B, K), with gradient."""
        return self.logits.log_softmax(1)

    @cached_property
    def p(self) -> Tensor:
        """p, (B, K), without gradient."""
        return self.log_p.detach().exp()

    @cached_property
    def label(self) -> Tensor:
        """y* = argmax p, (B,)."""
        return self.logits.detach().argmax(1)

    @cached_property
    def entropy(self) -> Tensor:
        """H = −Σ p log p, (B,), with gradient; a class masked out by a logit of −∞ adds nothing."""
        return entropy(self.log_p)
