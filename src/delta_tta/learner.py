"""The way of one batch through the words: forward, loss, gradient, and only then new state."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

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

    def frequencies(self) -> Tensor | None:
        """Return a copy of DOT's z, (K,), if there is one."""
        z = self.reweighting_memory.get("z")
        return None if z is None else z.clone()

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
        if later and self.objective is None and all(norm.settled for norm in self.subject.norms.values()):
            return self.predict(x), lambda: self.observe(x)[1]()
        self.subject.discard()
        with self._phase("observing"), torch.set_grad_enabled(self.objective is not None):
            logits = self._logits(x)
            if self.objective is not None and not logits.requires_grad:
                raise ModelError(
                    "The model's logits carry no gradient: its forward detaches them or runs under torch.no_grad(), or "
                    "requires_grad was switched off after adapt(). Undo that, or use a method without a loss."
                )
        answer = logits.detach()
        return answer.clone() if later else answer, lambda: self._learn(logits)

    def _learn(self, logits: Tensor) -> Outcome:
        try:
            with torch.autocast(logits.device.type, enabled=False):
                return self._learn_from(Prediction(logits))
        finally:
            self.subject.discard()

    def _learn_from(self, prediction: Prediction) -> Outcome:
        """Algorithm 1 of the paper, lines 4 to 10, around any objective; without one, only statistics are learnt."""
        loss, count, memory = None, None, self.objective_memory
        gradients: list[Tensor | None] = []
        if self.objective is not None:
            each, selected = self.objective.loss(prediction, self.objective_memory)  # (B,)
            if self.reweighting is not None:  # lines 4 to 7, and the product of line 8
                each = each * self.reweighting.weights(prediction, self.reweighting_memory)
            if selected is not None:
                each = each.masked_fill(~selected, 0)
            count = len(each) if selected is None else int(selected.sum())
            loss = each.sum() / (len(each) if self.settings.reduction == "batch" else max(count, 1))
            gradients = self._gradients(loss) if count else []
            memory = self.objective.next_state(prediction, self.objective_memory, selected)

        skipped = "no sample passed the threshold" if count == 0 else None
        measured = [t for norm in self.subject.norms.values() for t in norm.measured()]
        learnt: dict[str, Sequence[Tensor | None]] = {
            "prediction": [prediction.p],
            "loss": [None if loss is None else loss.detach()],
            "gradient": gradients,
            "statistics": measured,
        }
        if not _finite(list(itertools.chain(*learnt.values()))):
            skipped = f"not finite: {', '.join(name for name, values in learnt.items() if not _finite(values))}"
        else:
            self._commit(prediction, gradients, memory)
        return Outcome(
            loss=None if loss is None else float(loss.detach()),
            entropy=float(prediction.entropy.detach().mean()),
            used=None if count is None else count / len(prediction.label),
            frequencies=self.frequencies(),
            skipped=skipped,
        )

    def _gradients(self, loss: Tensor) -> list[Tensor | None]:
        with self._phase("replaying"):
            return list(torch.autograd.grad(loss, list(self.subject.parameters.values()), allow_unused=True))

    def _commit(self, prediction: Prediction, gradients: list[Tensor | None], memory: State) -> None:
        """Everything that could fail has been computed: change the state."""
        with torch.no_grad():
            if self.optimizer is not None and gradients:
                parameters = list(self.subject.parameters.values())
                for p, gradient in zip(parameters, gradients, strict=True):
                    p.grad = gradient
                try:
                    self.optimizer.step()  # line 9
                finally:
                    for p in parameters:
                        p.grad = None
            for norm in self.subject.norms.values():
                norm.commit()
            self.objective_memory = memory
            if self.reweighting is not None:  # line 10
                self.reweighting_memory = self.reweighting.next_state(prediction, self.reweighting_memory)
            self.classes = prediction.classes

    @contextmanager
    def _phase(self, phase: Literal["observing", "replaying"]) -> Iterator[None]:
        self.subject.phase.now = phase
        try:
            yield
        except BaseException:
            self.subject.discard()
            raise
        finally:
            self.subject.phase.now = "frozen"

    def _logits(self, x: Tensor) -> Tensor:
        try:
            logits = self.subject(x)
        except RuntimeError as error:
            p = next(self.subject.model.parameters(), x)
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
        if self.classes is not None and logits.shape[1] != self.classes:
            raise InputError(
                f"Expected logits over {self.classes} classes as before, but got {logits.shape[1]}. "
                "Call reset() before another task begins."
            )
        return logits


def _build(name: str | None, settings: Settings) -> Any:
    return None if name is None else WORDS[name].build(settings)


def _finite(values: Sequence[Tensor | None]) -> bool:
    flat = [value if value.dim() == 1 else value.flatten() for value in values if value is not None]
    return not flat or bool(torch.cat(flat).isfinite().all())


def _optimizer(parameters: list[torch.nn.Parameter], settings: Settings) -> torch.optim.Optimizer | None:
    if not parameters:
        return None
    fused = all(p.device.type in ("cpu", "cuda") for p in parameters)  # one call instead of dozens per step
    if settings.optimizer == "adam":
        return torch.optim.Adam(parameters, settings.lr, betas=(0.9, 0.999), fused=fused)
    return torch.optim.SGD(parameters, settings.lr, momentum=0.9, fused=fused)
