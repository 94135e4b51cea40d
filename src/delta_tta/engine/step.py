"""One update: forward pass, loss, gradient, then commit of the new state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..norms.labels import Labels
from ..norms.moving import MovingAverage, commit_all, merge_observed
from ..objectives import Objective
from ..prediction import Prediction
from ..recipe import Recipe
from ..registry import COMPONENTS, Capabilities, State
from ..reweighting import Reweighting
from ..settings import Settings
from ..shares.selection import ShareSelector
from ..signals import Outcome, Reason, Skip
from ..tensors import at_least_float32
from .again import Again
from .descent import descent
from .finite import not_finite
from .forward import Forward
from .loss import Loss
from .model import AdaptedModel
from .optimizer import make_optimizer, take_step

Update = Callable[[], Outcome]
"""Learns from a batch that was answered; before, nothing has changed."""


class Updater(Forward, Capabilities):
    """Owns the optimizer and what the objective and the reweighting remember."""

    def __init__(self, adapted: AdaptedModel, recipe: Recipe, settings: Settings) -> None:
        super().__init__(adapted)
        self.settings = settings
        self.objective: Objective | None = _build(recipe.objective, settings)
        self.reweighting: Reweighting | None = _build(recipe.reweighting, settings)
        if recipe.postprocess is not None:
            self.postprocess = COMPONENTS[recipe.postprocess].build(adapted.model, settings)
            self.postprocess.ranks = self.ranks
        self.labelled = any(norm.needs_labels for norm in adapted.norms.values())
        compares = recipe.trains != "nothing" or self.labelled
        self.least_classes = 2 if compares else self.postprocess.least_classes if self.postprocess else 1
        has_shares = any(norm.has_shares for norm in adapted.norms.values())
        self.shares = ShareSelector(adapted, settings) if has_shares else None
        self._start()

    def _start(self) -> None:
        self.classes = None
        self.updates = 0  # learnt since the source
        self.objective_memory: State = {}
        self.reweighting_memory: State = {}
        if self.postprocess is not None:
            self.postprocess.reset()
        if self.shares is not None:
            self.shares.reset()
        self._start_training()

    def _start_training(self) -> None:
        self.optimizer = make_optimizer(list(self.adapted.parameters.values()), self.settings)

    def reset(self) -> None:
        """Bring back the source."""
        self.adapted.reset()
        self._start()

    def reset_if_due(self) -> None:
        """Bring back the source after every `reset_every` updates; what is known of the stream stays."""
        if self.settings.reset_every is not None and self.updates >= self.settings.reset_every:
            classes = self.classes
            self.reset()
            self.classes = classes
            self.hooks.restarted()

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

    def source_at_hand(self, x: Tensor) -> Tensor | None:
        """Return the source's logits of the batch just answered, if a comparison of shares has them."""
        if self.shares is None or self.objective is not None:  # a trained γ and β are not the source's
            return None
        return self.shares.source_of(x)

    def frequencies(self) -> Tensor | None:
        """Return DOT's z, (K,), if there is one."""
        return None if self.reweighting is None else self.reweighting.frequencies(self.reweighting_memory)

    @property
    def started(self) -> bool:
        """Whether no layer waits for a batch to start its averages from."""
        return all(norm.settled for norm in self.adapted.norms.values())

    @property
    def looks_ahead(self) -> bool:
        """Whether some layer answers with what it is about to learn from the batch."""
        return any(norm.looks_ahead for norm in self.adapted.norms.values())

    def bake(self) -> None:
        """Write what a plain model needs into it."""

    def close(self) -> None:
        """Remove what was put into the model for the answers."""
        if self.postprocess is not None:
            self.postprocess.close()

    def observe(self, x: Tensor, later: bool = False) -> tuple[Tensor, Update]:
        """Answer, and return the update that learns from this batch.

        Args:
            x: the batch.
            later: leave to the update all that the answer does not need.
        """
        ahead = self.labelled or self.looks_ahead
        if later and self.objective is None and self.shares is None and self.started and not ahead:
            return self.predict(x), lambda: self.observe(x)[1]()
        self.discard()
        attempt = self.hooks.attempt()
        with attempt():
            if self.labelled:
                with torch.no_grad():
                    logits = self.logits(x)
            else:
                logits = self._observed(x)
            with torch.no_grad():
                answer = self.corrected(x, logits.detach(), seen=not self.labelled)
            undone = self.hooks.before_answer(x, logits)  # LAME reads features of the last run
            if undone is not None:
                return self.predict(x), lambda: self._not_learnt(undone)
        labels = Labels.of(logits) if self.labelled else None

        def learn() -> Outcome:
            with attempt():
                return self._learn(x, logits if labels is None else self._labelled(x, labels))

        return answer.clone() if later else answer, learn

    def _labelled(self, x: Tensor, labels: Labels) -> Tensor:
        """Run the model again, and let its layers observe the batch with the labels of the answer."""
        self.adapted.phase.labels = labels
        return self._observed(x)

    def _observed(self, x: Tensor) -> Tensor:
        """Run the model, and let its layers observe; anchored layers choose their share first."""
        logits = None
        if self.shares is not None:
            with self.in_phase("observing"), torch.no_grad():
                logits = self.shares.choose(x, self._compared)
            reads = self.postprocess is not None and self.postprocess.reads_features
            if logits is not None and (self.objective is not None or reads):
                self.shares.again()  # with gradients, or with the features that the answer wants
                logits = None
        if logits is None:
            with self.in_phase("observing"), torch.set_grad_enabled(self.objective is not None):
                logits = self.logits(x) if self.objective is None else self.learnable(x)
        return logits

    def _compared(self, x: Tensor, observe: bool) -> Tensor:
        """Run a candidate; without observing, as it ran on the batch before."""
        self.adapted.phase.now = "observing" if observe else "replaying"
        return self.logits(x)

    def refuse(self, x: Tensor, why: Skip) -> tuple[Tensor, Update]:
        """Answer a batch that has something wrong with it, and learn nothing from it."""
        self.hooks.refuse(why)
        return self.predict(x), lambda: self._not_learnt(why)

    def _not_learnt(self, why: Skip) -> Outcome:
        return Outcome(skipped=why, frequencies=self.frequencies())

    def _learn(self, x: Tensor, logits: Tensor) -> Outcome:
        kind = logits.device.type
        again = Again(self, x, kind)
        try:
            with torch.autocast(kind, enabled=False):
                if self.ranks is not None:
                    logits = self.ranks.join(at_least_float32(logits))
                    if not len(logits):
                        return Outcome(skipped=Skip(Reason.NO_SAMPLE), frequencies=self.frequencies())
                return self._learn_from(Prediction(logits), again)
        finally:
            self.discard()

    def discard(self) -> None:
        """Forget what was observed and not committed."""
        self.adapted.discard()
        if self.shares is not None:
            self.shares.settle()

    def _learn_from(self, prediction: Prediction, again: Again) -> Outcome:
        """Algorithm 1 of the paper, lines 4 to 10, around any objective; without one, only statistics are learnt.

        `prediction` is of the samples of all ranks; `again` runs the model, or the source, on the batch again.
        """
        found = None
        gradients: list[Tensor | None] = []
        if self.objective is not None:
            found, gradients = self._descent(prediction, again)
        skipped = Skip(Reason.THRESHOLD) if found is not None and not found.count else None
        merge_observed(self.adapted.norms.values())
        measured = [t for norm in self.adapted.norms.values() for t in norm.measured()]
        learnt: dict[str, Sequence[Tensor | None]] = {
            "prediction": [prediction.p],
            "loss": [None if found is None else found.value.detach()],
            "gradient": gradients,
            "statistics": measured,
        }
        wrong = not_finite(learnt)
        wrong = wrong or self.hooks.before_commit(len(prediction.label), again.of_source)
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

    def _descent(self, prediction: Prediction, again: Again) -> tuple[Loss, list[Tensor | None]]:
        """Return the loss of a batch and its gradients."""
        assert self.objective is not None
        return descent(self, self.objective, prediction, again)

    def gradients(self, loss: Tensor) -> list[Tensor | None]:
        """Return those of the trained parameters, summed over all ranks; None where the loss does not depend on one."""
        with self.in_phase("replaying"):
            parameters = list(self.adapted.parameters.values())
            own: list[Tensor | None] = list(torch.autograd.grad(loss, parameters, allow_unused=True))
        return own if self.ranks is None else self.ranks.add(own)

    def _commit(self, prediction: Prediction, gradients: list[Tensor | None], found: Loss | None) -> None:
        """Change the state: all that could fail is done."""
        with torch.no_grad():
            if self.optimizer is not None and gradients:
                take_step(self.optimizer, list(self.adapted.parameters.values()), gradients)  # line 9
            commit_all(self.adapted.norms.values())
            if self.shares is not None:
                self.shares.commit()
            if self.postprocess is not None:
                self.postprocess.commit()
            if found is not None:
                self.objective_memory = found.memory
                if self.objective is not None and self.objective.recovers(found.memory):
                    self.adapted.untrain()
            if self.reweighting is not None:  # line 10
                before = self.reweighting_memory
                self.reweighting_memory = self.reweighting.next_state(
                    prediction, before, None if found is None else found.selected
                )
            self.hooks.after_commit(prediction)
            self.classes = prediction.classes
            self.updates += 1


def _build(name: str | None, settings: Settings) -> Any:
    return None if name is None else COMPONENTS[name].build(settings)
