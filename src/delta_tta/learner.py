"""The way of one batch through the words: forward, loss, gradient, and only then new state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .errors import InputError, ModelError
from .objectives import Objective
from .prediction import Prediction
from .recipe import Recipe
from .reweighting import Reweighting
from .settings import Settings
from .signals import Outcome
from .subject import Subject
from .words import WORDS, State

Update = Callable[[], Outcome]
"""Learns from a batch that was answered; until it is called, nothing has changed."""


class Learner:
    """Owns the optimizer and what the objective and the reweighting remember."""

    def __init__(self, subject: Subject, recipe: Recipe, settings: Settings) -> None:
        self.subject = subject
        self.settings = settings
        self.objective: Objective | None = _build(recipe.objective, settings)
        self.reweighting: Reweighting | None = _build(recipe.reweighting, settings)
        self._start()

    def _start(self) -> None:
        self.classes: int | None = None
        self.objective_memory: State = {}
        self.reweighting_memory: State = {}
        self.optimizer = _optimizer(list(self.subject.parameters.values()), self.settings)

    def reset(self) -> None:
        """Bring back the source."""
        self.subject.reset()
        self._start()

    def predict(self, x: Tensor) -> Tensor:
        """Answer with what is known; nothing changes."""
        with torch.no_grad():
            return self._logits(x).detach()

    def observe(self, x: Tensor, later: bool = False) -> tuple[Tensor, Update]:
        """Answer, and return the update that learns from this batch.

        Args:
            x: the batch.
            later: the update runs after the caller has the answer; leave to it all that the answer does not need.
        """
        if later and self.objective is None and self.classes is not None:
            return self.predict(x), lambda: self.observe(x)[1]()
        with self._observing(), torch.set_grad_enabled(self.objective is not None):
            logits = self._logits(x)
            if self.objective is not None and not logits.requires_grad:
                raise ModelError(
                    "The model's logits carry no gradient: its forward detaches them or runs under torch.no_grad(). "
                    "Take that out, or use a method without a loss, such as 'tema'."
                )
        return logits.detach(), lambda: self._learn(logits)

    def _learn(self, logits: Tensor) -> Outcome:
        try:
            with torch.autocast(logits.device.type, enabled=False):
                prediction = Prediction(logits)
                if self.objective is None:
                    self._commit(prediction)
                    return Outcome(entropy=float(prediction.entropy.mean()))
                return self._minimise(self.objective, prediction)
        finally:
            self._discard()

    def _minimise(self, objective: Objective, prediction: Prediction) -> Outcome:
        """Algorithm 1 of the paper, lines 4 to 10, around any objective."""
        each, selected = objective.loss(prediction, self.objective_memory)  # (B,)
        if self.reweighting is not None:
            each = each * self.reweighting.weights(prediction, self.reweighting_memory)
        if selected is not None:
            each = each.masked_fill(~selected, 0)
        count = len(each) if selected is None else int(selected.sum())
        loss = each.sum() / (len(each) if self.settings.reduction == "batch" else max(count, 1))

        skipped = None
        if not torch.isfinite(loss):
            skipped = "the loss is not finite"  # and nothing of this batch enters the state
        else:
            if count == 0:
                skipped = "no sample passed the threshold"
            else:
                self._differentiate(loss)
            self.objective_memory = objective.next_state(prediction, self.objective_memory, selected)
            self._commit(prediction)
        return Outcome(
            loss=float(loss.detach()),
            entropy=float(prediction.entropy.detach().mean()),
            used=count / len(each),
            frequencies=self.reweighting_memory.get("z"),
            skipped=skipped,
        )

    def _differentiate(self, loss: Tensor) -> None:
        parameters = list(self.subject.parameters.values())
        for p, gradient in zip(parameters, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True):
            p.grad = gradient

    def _commit(self, prediction: Prediction) -> None:
        """Everything that could fail has been computed: change the state."""
        with torch.no_grad():
            if self.optimizer is not None:
                self.optimizer.step()  # does nothing, momentum included, where there is no gradient
            for norm in self.subject.norms.values():
                norm.commit()
            if self.reweighting is not None:
                self.reweighting_memory = self.reweighting.next_state(prediction, self.reweighting_memory)
            self.classes = prediction.classes

    def _discard(self) -> None:
        self.subject.discard()
        for p in self.subject.parameters.values():
            p.grad = None

    @contextmanager
    def _observing(self) -> Iterator[None]:
        self.subject.phase.adapting = True
        try:
            yield
        except BaseException:
            self._discard()
            raise
        finally:
            self.subject.phase.adapting = False

    def _logits(self, x: Tensor) -> Tensor:
        try:
            logits = self.subject(x)
        except RuntimeError as error:
            p = next(self.subject.model.parameters(), x)
            if (p.dtype, p.device) == (x.dtype, x.device):
                raise
            raise InputError(
                f"Expected images as the model takes them ({p.dtype} on {p.device}), but got {x.dtype} on {x.device}. "
                "Convert them, and scale and normalise them as in training."
            ) from error
        if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != len(x):
            came = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise InputError(
                f"Expected the model to return logits of shape ({len(x)}, classes), but got {came}. "
                "Give it a whole batch, and wrap it so that its forward returns the logits alone."
            )
        if self.classes is not None and logits.shape[1] != self.classes:
            raise InputError(
                f"Expected logits over {self.classes} classes as before, but got {logits.shape[1]}. "
                "Call reset() before another task begins."
            )
        return logits


def _build(name: str | None, settings: Settings) -> Any:
    return None if name is None else WORDS[name].build(settings)


def _optimizer(parameters: list[torch.nn.Parameter], settings: Settings) -> torch.optim.Optimizer | None:
    if not parameters:
        return None
    fused = all(p.device.type in ("cpu", "cuda") for p in parameters)  # one call instead of dozens per step
    if settings.optimizer == "adam":
        return torch.optim.Adam(parameters, settings.lr, betas=(0.9, 0.999), fused=fused)
    return torch.optim.SGD(parameters, settings.lr, momentum=0.9, fused=fused)
