"""Runs the adapted model, the source model or the reference model, and checks the logits."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from ..errors import InputError, ModelError
from ..postprocess.base import Postprocess
from ..tensors import overwritten
from .hooks import Hooks
from .model import AdaptedModel


class Forward:
    """The adapted model, its answers, and its number of classes, known after the first batch."""

    least_classes = 1

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
            answer = self._answer(x, self._logits(x).detach())
        if self.postprocess is not None:
            self.postprocess.pending = None
        return answer

    def logits_of_source(self, x: Tensor) -> Tensor:
        """Run the source model."""
        with torch.no_grad(), self.adapted.wearing(self.adapted.source), self._phase("source"):
            return self._logits(x)

    def logits_of_reference(self, x: Tensor) -> Tensor:
        """Run the reference model: current statistics, parameters of the source."""
        with torch.no_grad(), self.adapted.wearing(self.adapted.source):
            return self._logits(x)

    def _run_and_forget(self, x: Tensor) -> Tensor:
        """Answer as the first batch would, and leave no trace."""
        with self._phase("observing"), torch.no_grad():
            logits = self._logits(x)
        self.adapted.discard()
        return logits

    @contextmanager
    def _phase(self, phase: Literal["observing", "replaying", "source"]) -> Iterator[None]:
        self.adapted.phase.now = phase
        try:
            yield
        except BaseException:
            self.discard()
            raise
        finally:
            self.adapted.phase.now = "frozen"

    def _learnable(self, x: Tensor) -> Tensor:
        """Return logits that carry a gradient."""
        logits = self._logits(x)
        if not logits.requires_grad:
            raise ModelError(
                "The model's logits carry no gradient: its forward detaches them or runs under torch.no_grad(), or "
                "requires_grad was switched off after adapt(). Undo that, or use a method without a loss."
            )
        if self.adapted.overwritten is not None:
            raise ModelError(overwritten(self.adapted.overwritten))
        return logits

    def _logits(self, x: Tensor) -> Tensor:
        if self.ranks is not None and not len(x):
            # Many models cannot run on nothing, but the other ranks wait at every norm layer: run a row that counts
            # nowhere, and drop its answer.
            self.adapted.phase.empty = True
            try:
                return self._logits(x.new_zeros(1, *x.shape[1:]))[:0]
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

    def _answer(self, x: Tensor, logits: Tensor, seen: bool = False) -> Tensor:
        if self.hooks.on and not math.isfinite(float(logits.sum())):
            answered = logits.amax(1, keepdim=True).isfinite()  # a class may be masked by −∞
            if not bool(answered.all()):
                logits = torch.where(answered, logits, self.logits_of_source(x))
        if self.postprocess is None:
            return logits
        return self.postprocess(x, logits, lambda images: self._again(images, seen).detach())

    def _again(self, images: Tensor, seen: bool) -> Tensor:
        """Run other images as the batch was run, which the layers have seen or not."""
        with self._phase("replaying") if seen else contextlib.nullcontext():
            return self._logits(images)
