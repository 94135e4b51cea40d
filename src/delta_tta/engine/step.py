"""The way of one batch through the words: forward, loss, gradient, and only then new state."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..guard.dependence import DependenceCheck
from ..norms.anchored import Anchored
from ..norms.layers import MovingAverage
from ..norms.selection import ShareSelector
from ..norms.statistics import at_least_float32
from ..objectives import Objective
from ..postprocess.base import Postprocess
from ..prediction import Prediction
from ..recipe import Recipe
from ..registry import COMPONENTS, Capabilities, State
from ..reweighting import Reweighting
from ..settings import Settings
from ..signals import Outcome, Reason, Skip
from .finite import not_finite
from .forward import Forward
from .hooks import Hooks
from .loss import Loss, loss_of
from .model import AdaptedModel
from .optimizer import make_optimizer, take_step

Update = Callable[[], Outcome]
"""Learns from a batch that was answered; until it is called, nothing has changed."""


class Updater(Forward, Capabilities):
    """Owns the optimizer and what the objective and the reweighting remember."""

    def __init__(self, adapted: AdaptedModel, recipe: Recipe, settings: Settings) -> None:
        super().__init__(adapted)
        self.settings = settings
        self.objective: Objective | None = _build(recipe.objective, settings)
        self.reweighting: Reweighting | None = _build(recipe.reweighting, settings)
        self.postprocess: Postprocess | None = (
            None if recipe.postprocess is None else COMPONENTS[recipe.postprocess].build(adapted.model, settings)
        )
        if self.postprocess is not None:
            self.postprocess.ranks = self.ranks
        self.least_classes = (
            2 if recipe.trains != "nothing" else self.postprocess.least_classes if self.postprocess else 1
        )
        self.hooks = Hooks()
        anchored = any(isinstance(norm, Anchored) for norm in adapted.norms.values())
        self.shares = ShareSelector(adapted, settings) if anchored else None
        self.dependence = (
            DependenceCheck(recipe)
            if recipe.statistics == "bn" and adapted.norms and recipe.standalone is None
            else None
        )
        self._start()

    def _start(self) -> None:
        self.classes = None
        self.objective_memory: State = {}
        self.reweighting_memory: State = {}
        if self.postprocess is not None:
            self.postprocess.reset()
        if self.shares is not None:
            self.shares.reset()
        if self.dependence is not None:
            self.dependence.reset()
        self._start_training()

    def _start_training(self) -> None:
        self.optimizer = make_optimizer(list(self.adapted.parameters.values()), self.settings)

    def reset(self) -> None:
        """Bring back the source."""
        self.adapted.reset()
        self._start()

    @property
    def learns(self) -> bool:
        """Whether a batch may change the answers to later ones."""
        averages = any(isinstance(norm, MovingAverage) for norm in self.adapted.norms.values())
        answers = self.postprocess is not None and self.postprocess.learns
        return self.objective is not None or averages or answers

    @property
    def compares(self) -> bool:
        """Whether the answer to a sample depends on the others of its batch."""
        return bool(self.adapted.norms) or (self.postprocess is not None and self.postprocess.compares)

    def frequencies(self) -> Tensor | None:
        """Return a copy of DOT's z, (K,), if there is one."""
        z = self.reweighting_memory.get("z")
        return None if z is None else z.clone()

    def predict(self, x: Tensor) -> Tensor:
        """Answer with what is known; nothing changes."""
        with torch.no_grad():
            answer = self._answer(x, self._logits(x).detach())
        if self.postprocess is not None:
            self.postprocess.pending = None
        return answer

    @property
    def started(self) -> bool:
        """Whether no layer waits for a batch to start its averages from."""
        return all(norm.settled for norm in self.adapted.norms.values())

    def bake(self) -> None:
        """Write into the model what a plain model should answer with."""

    def close(self) -> None:
        """Take out of the model what was put into it for the answers."""
        if self.postprocess is not None:
            self.postprocess.close()

    def observe(self, x: Tensor, later: bool = False) -> tuple[Tensor, Update]:
        """Answer, and return the update that learns from this batch.

        Args:
            x: the batch.
            later: the update runs after the caller has the answer; leave to it all that the answer does not need.
        """
        if later and self.objective is None and self.shares is None and self.started:
            return self.predict(x), lambda: self.observe(x)[1]()
        self.discard()
        attempt = self.hooks.attempt()
        with attempt():
            logits = self._observed(x)
            with torch.no_grad():
                answer = self._answer(x, logits.detach(), seen=True)
            undone = self.hooks.before_answer(x, logits)  # LAME reads features of the last run
            if undone is not None:
                return self.predict(x), lambda: self._not_learnt(undone)

        def learn() -> Outcome:
            with attempt():
                return self._learn(x, logits)

        return answer.clone() if later else answer, learn

    def _observed(self, x: Tensor) -> Tensor:
        """Run the model, and let its layers observe; anchored layers choose their share first."""
        logits = None
        if self.shares is not None:
            with self._phase("observing"), torch.no_grad():
                logits = self.shares.choose(x, self._compared)
            reads = self.postprocess is not None and self.postprocess.reads_features
            if logits is not None and (self.objective is not None or reads):
                self.shares.again()  # with gradients, or with the features that the answer wants
                logits = None
        if logits is None:
            with self._phase("observing"), torch.set_grad_enabled(self.objective is not None):
                logits = self._logits(x) if self.objective is None else self._learnable(x)
        return logits

    def _compared(self, x: Tensor, observe: bool) -> Tensor:
        """Run a candidate; without observing, as it ran on the batch before."""
        self.adapted.phase.now = "observing" if observe else "replaying"
        return self._logits(x)

    def refuse(self, x: Tensor, why: Skip) -> tuple[Tensor, Update]:
        """Answer a batch that has something wrong with it, and learn nothing from it."""
        self.hooks.refuse(why)
        return self.predict(x), lambda: self._not_learnt(why)

    def _not_learnt(self, why: Skip) -> Outcome:
        return Outcome(skipped=why, frequencies=self.frequencies())

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

    def _learn(self, x: Tensor, logits: Tensor) -> Outcome:
        kind = logits.device.type
        autocast = torch.is_autocast_enabled(kind)

        def of_source() -> Tensor:
            with torch.autocast(kind, enabled=autocast):  # as the batch was run
                return self.logits_of_source(x)

        try:
            with torch.autocast(kind, enabled=False):
                if self.ranks is not None:
                    logits = self.ranks.join(at_least_float32(logits))
                    if not len(logits):
                        return Outcome(skipped=Skip(Reason.NO_SAMPLE), frequencies=self.frequencies())
                return self._learn_from(Prediction(logits), of_source)
        finally:
            self.discard()

    def discard(self) -> None:
        """Forget what was observed and not committed."""
        self.adapted.discard()
        if self.shares is not None:
            self.shares.settle()

    def _learn_from(self, prediction: Prediction, of_source: Callable[[], Tensor]) -> Outcome:
        """Algorithm 1 of the paper, lines 4 to 10, around any objective; without one, only statistics are learnt.

        Args:
            prediction: of the samples of all ranks.
            of_source: runs the source on the batch, for the guard to look at it.
        """
        found = None
        gradients: list[Tensor | None] = []
        if self.objective is not None:
            found = self._losses(prediction)
            gradients = self._gradients(found.value) if found.count else []
        skipped = Skip(Reason.THRESHOLD) if found is not None and not found.count else None
        measured = [t for norm in self.adapted.norms.values() for t in norm.measured()]
        learnt: dict[str, Sequence[Tensor | None]] = {
            "prediction": [prediction.p],
            "loss": [None if found is None else found.value.detach()],
            "gradient": gradients,
            "statistics": measured,
        }
        wrong = not_finite(learnt)
        wrong = wrong or self.hooks.before_commit(len(prediction.label), of_source)
        if wrong is not None:
            self.hooks.refuse(wrong)
            skipped = wrong
        else:
            self._commit(prediction, gradients, found)
        return Outcome(
            loss=None if found is None else float(found.value.detach()),
            entropy=float(prediction.entropy.detach().mean()),
            used=None if found is None else found.count / len(prediction.label),
            frequencies=self.frequencies(),
            skipped=skipped,
        )

    def _losses(self, prediction: Prediction) -> Loss:
        assert self.objective is not None
        return loss_of(
            prediction,
            self.objective,
            self.objective_memory,
            self.reweighting,
            self.reweighting_memory,
            self.adapted.parameters,
            whole_batch=self.settings.reduction == "batch",
        )

    def _gradients(self, loss: Tensor) -> list[Tensor | None]:
        with self._phase("replaying"):
            parameters = list(self.adapted.parameters.values())
            own: list[Tensor | None] = list(torch.autograd.grad(loss, parameters, allow_unused=True))
        return own if self.ranks is None else self.ranks.add(own)

    def _commit(self, prediction: Prediction, gradients: list[Tensor | None], found: Loss | None) -> None:
        """Everything that could fail has been computed: change the state."""
        with torch.no_grad():
            if self.optimizer is not None and gradients:
                take_step(self.optimizer, list(self.adapted.parameters.values()), gradients)  # line 9
            for norm in self.adapted.norms.values():
                norm.commit()
            if self.shares is not None:
                self.shares.commit()
            if self.postprocess is not None:
                self.postprocess.commit()
            if found is not None:
                self.objective_memory = found.memory
            if self.reweighting is not None:  # line 10
                before = self.reweighting_memory
                self.reweighting_memory = self.reweighting.next_state(
                    prediction, before, None if found is None else found.selected
                )
            if self.dependence is not None:
                self.dependence.look(prediction)
            self.classes = prediction.classes


def _build(name: str | None, settings: Settings) -> Any:
    return None if name is None else COMPONENTS[name].build(settings)
