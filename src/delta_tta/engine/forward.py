"""Runs the adapted model, the source model or the reference model, and checks the logits."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from ..errors import InputError, ModelError
from ..postprocess.base import Postprocess
from ..renamed import renamed_methods
from ..tensors import overwritten
from .hooks import Hooks
from .model import AdaptedModel


class Forward:
    """The adapted model, its answers, and its number of classes, known after the first batch."""

    least_classes = 1

    if not TYPE_CHECKING:  # methods of other packages call these
        __getattr__ = renamed_methods(
            {f"_{name}": name for name in ("logits", "learnable", "gradients")}
            | {"_phase": "in_phase", "_answer": "corrected"}
        )

    def __init__(self, adapted: AdaptedModel) -> None:
        self.adapted = adapted
        self.ranks = adapted.phase.ranks
        self.classes: int | None = None
        self.postprocess: Postprocess | None = None
        self.hooks = Hooks()

    def discard(self) -> None:
        """Forget what was observed and not committed."""
        self.adapted.discard()

    def predict(self, x: Tensor) -> Tensor:
        """Answer with what is known; nothing changes."""
        with torch.no_grad():
            answer = self.corrected(x, self.logits(x).detach())
        if self.postprocess is not None:
            self.postprocess.pending = None
        return answer

    def logits_of_source(self, x: Tensor) -> Tensor:
        """Run the source model."""
        with torch.no_grad(), self.adapted.wearing(self.adapted.source), self.in_phase("source"):
            return self.logits(x)

    def logits_of_reference(self, x: Tensor) -> Tensor:
        """Run the reference model: current statistics, parameters of the source."""
        with torch.no_grad(), self.adapted.wearing(self.adapted.source):
            return self.logits(x)

    def _run_and_forget(self, x: Tensor) -> Tensor:
        """Answer as the first batch would, and leave no trace."""
        with self.in_phase("observing"), torch.no_grad():
            logits = self.logits(x)
        self.adapted.discard()
        return logits

    @contextmanager
    def in_phase(self, phase: Literal["observing", "replaying", "source"]) -> Iterator[None]:
        """Let all norm layers be in this phase; afterwards they are frozen again."""
        self.adapted.phase.now = phase
        try:
            yield
        except BaseException:
            self.discard()
            raise
        finally:
            self.adapted.phase.now = "frozen"

    def learnable(self, x: Tensor) -> Tensor:
        """Return logits that carry a gradient."""
        logits = self.logits(x)
        if not logits.requires_grad:
            raise ModelError(
                "The model's logits carry no gradient: its forward detaches them or runs under torch.no_grad(), or "
                "requires_grad was switched off after adapt(). Undo that, or use a method without a loss."
            )
        if self.adapted.overwritten is not None:
            raise ModelError(overwritten(self.adapted.overwritten))
        return logits

    def logits(self, x: Tensor) -> Tensor:
        """Run the adapted model, and return its logits, (B, K), or say what is wrong with them."""
        if self.ranks is not None and not len(x):
            # Many models cannot run on nothing, but the other ranks wait at every norm layer: run a row that counts
            # nowhere, and drop its answer.
            self.adapted.phase.empty = True
            try:
                return self.logits(x.new_zeros(1, *x.shape[1:]))[:0]
            finally:
                self.adapted.phase.empty = False
        try:
            logits = self.adapted(x)
        except RuntimeError as error:
            p = next(self.adapted.model.parameters(), x)
            if (p.dtype, p.device) == (x.dtype, x.device) or isinstance(error, torch.cuda.OutOfMemoryError):
                raise
            raise InputError(
                f"Expected images as the model takes them ({p.dtype} on {p.device}), but got {x.dtype} on {x.device}. "
                f"Convert them, and scale and normalise them as in training. The model said: {error}"
            ) from error
        if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != len(x):
            came = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise InputError(
                f"Expected the model to return logits of shape ({len(x)}, classes), but got {came}. "
                "Give it a whole batch, and wrap it so that its forward returns the logits alone."
            )
        if logits.shape[1] < self.least_classes:
            raise InputError(
                f"Expected logits over at least two classes, but got shape {tuple(logits.shape)}: over a single class "
                "every prediction is certain, and nothing can be learnt. Let a model with one logit z for two classes "
                "return torch.cat([torch.zeros_like(z), z], 1)."
            )
        if self.classes is not None and logits.shape[1] != self.classes:
            raise InputError(
                f"Expected logits over {self.classes} classes as before, but got {logits.shape[1]}. "
                "Call reset() before another task begins."
            )
        return logits

    def corrected(self, x: Tensor, logits: Tensor, seen: bool = False) -> Tensor:
        """Return the answer: the logits, corrected by the post-processing.

        Args:
            x: the batch.
            logits: of the batch, without gradient.
            seen: whether the layers have observed it.
        """
        if self.hooks.on and not math.isfinite(float(logits.sum())):
            answered = logits.amax(1, keepdim=True).isfinite()  # a class may be masked by −∞
            if not bool(answered.all()):
                logits = torch.where(answered, logits, self.logits_of_source(x))
        if self.postprocess is None:
            return logits
        return self.postprocess(x, logits, lambda images: self._again(images, seen).detach())

    def _again(self, images: Tensor, seen: bool) -> Tensor:
        """Run other images as the batch was run, which the layers have seen or not."""
        with self.in_phase("replaying") if seen else contextlib.nullcontext():
            return self.logits(images)
