"""The way of one batch through the words: forward, loss, gradient, and only then new state."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import InputError, SettingError
from ..guard.dependence import DependenceCheck
from ..norms.anchored import Anchored
from ..norms.layers import MovingAverage
from ..norms.selection import ShareSelector
from ..norms.statistics import at_least_float32
from ..objectives import Eata, Objective
from ..postprocess.base import Postprocess
from ..prediction import Prediction
from ..recipe import Recipe
from ..registry import COMPONENTS, Capabilities, State
from ..reweighting import Reweighting
from ..settings import Settings
from ..signals import Outcome
from .forward import Forward
from .model import AdaptedModel

if TYPE_CHECKING:
    from ..guard.monitor import Monitor

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
        self.monitor: Monitor | None = None
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
        self.optimizer = _optimizer(list(self.adapted.parameters.values()), self.settings)

    def reset(self) -> None:
        """Bring back the source."""
        self.adapted.reset()
        self._start()

    @property
    def learns(self) -> bool:
        """Whether a batch may change the answers to later ones."""
        averages = any(isinstance(norm, MovingAverage) for norm in self.adapted.norms.values())
        return self.objective is not None or averages

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

    def start(self, x: Tensor) -> tuple[Tensor, Callable[[], None]]:
        """Answer with the statistics of x, and return what makes them the start of the averages; nothing trains."""
        self.adapted.discard()
        with torch.no_grad():
            with self._phase("observing"):
                logits = self._logits(x)
            answer = self._answer(x, logits, seen=True)
        finite = _finite([logits, *(t for norm in self.adapted.norms.values() for t in norm.measured())])

        def begin() -> None:
            for norm in self.adapted.norms.values():
                norm.commit() if finite else norm.discard()

        return answer, begin

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
        mark = None if self.monitor is None else self.monitor.mark()
        with self._undone_if_it_fails(mark):
            logits = self._observed(x)
            with torch.no_grad():
                answer = self._answer(x, logits.detach(), seen=True)
            undone = (
                None if self.monitor is None else self.monitor.check(x, logits)
            )  # LAME reads features of the last run
            if undone is not None:
                return self.predict(x), lambda: self._not_learnt(undone)

        def learn() -> Outcome:
            with self._undone_if_it_fails(mark):
                return self._learn(x, logits)

        return answer.clone() if later else answer, learn

    def _undone_if_it_fails(self, mark: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.monitor is None else self.monitor.undone_if_it_fails(mark)

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

    def refuse(self, x: Tensor, why: str) -> tuple[Tensor, Update]:
        """Answer a batch that has something wrong with it, and learn nothing from it."""
        assert self.monitor is not None
        self.monitor.refuse(why)
        return self.predict(x), lambda: self._not_learnt(why)

    def _not_learnt(self, why: str) -> Outcome:
        return Outcome(skipped=why, frequencies=self.frequencies())

    def _answer(self, x: Tensor, logits: Tensor, seen: bool = False) -> Tensor:
        if self.monitor is not None and not math.isfinite(float(logits.sum())):
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
                        return Outcome(skipped="no rank had a sample", frequencies=self.frequencies())
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
        loss, count, selected, memory = None, None, None, self.objective_memory
        gradients: list[Tensor | None] = []
        if self.objective is not None:
            each, selected = self._losses(prediction)  # (B,)
            if selected is not None:
                each = each.masked_fill(~selected, 0)
            count = len(each) if selected is None else int(selected.sum())
            loss = each.sum() / (len(each) if self.settings.reduction == "batch" else max(count, 1))
            for penalty in self._penalties(prediction):
                loss = loss + penalty
            gradients = self._gradients(loss) if count else []
            memory = self.objective.next_state(prediction, self.objective_memory, selected)

        skipped = "no sample passed the threshold" if count == 0 else None
        measured = [t for norm in self.adapted.norms.values() for t in norm.measured()]
        learnt: dict[str, Sequence[Tensor | None]] = {
            "prediction": [prediction.p],
            "loss": [None if loss is None else loss.detach()],
            "gradient": gradients,
            "statistics": measured,
        }
        wrong = self._not_finite(learnt)
        if self.monitor is not None:
            wrong = wrong or self.monitor.garbage(len(prediction.label), of_source)
            if wrong is not None:
                self.monitor.refuse(wrong)
        if wrong is not None:
            skipped = wrong
        else:
            self._commit(prediction, gradients, memory, selected)
        return Outcome(
            loss=None if loss is None else float(loss.detach()),
            entropy=float(prediction.entropy.detach().mean()),
            used=None if count is None else count / len(prediction.label),
            frequencies=self.frequencies(),
            skipped=skipped,
        )

    def _losses(self, prediction: Prediction) -> tuple[Tensor, Tensor | None]:
        """Return the loss of each sample and which of them train: lines 4 to 7, and the product of line 8."""
        assert self.objective is not None
        if self.reweighting is None:
            return self.objective.loss(prediction, self.objective_memory)
        memory = self.reweighting_memory
        each, selected = self.objective.loss(self.reweighting.adjusted(prediction, memory), self.objective_memory)
        weights = self.reweighting.weights(prediction, memory)
        return each if weights is None else each * weights, self.reweighting.select(prediction, selected, memory)

    def _penalties(self, prediction: Prediction) -> list[Tensor]:
        assert self.objective is not None
        of_words = [self.objective.penalty(self.adapted.parameters)]
        if self.reweighting is not None:
            of_words.append(self.reweighting.penalty(prediction, self.reweighting_memory))
        return [penalty for penalty in of_words if penalty is not None]

    def look_at(self, source: Iterable[Tensor] | None) -> None:
        """Let an objective that needs source images see them."""
        objective = self.objective
        if not isinstance(objective, Eata):
            return
        if source is None:
            raise SettingError(
                "Method 'eata' measures on images of the training distribution how much each parameter matters. Give "
                "some (the paper: 2,000) in batches: adapt(model, 'eata', source=loader); or write 'eta'."
            )
        batches = (
            (source,) if isinstance(source, Tensor) else (x[0] if isinstance(x, (tuple, list)) else x for x in source)
        )
        objective.hold(self.adapted.source, self.fisher(batches))

    def fisher(self, batches: Iterable[Tensor]) -> dict[str, Tensor]:
        """Return the mean over batches of the squared gradient of the loss on the model's own labels (as EATA's)."""
        parameters = self.adapted.parameters
        total = {name: torch.zeros_like(p) for name, p in parameters.items()}
        count = 0
        for x in batches:
            with self._phase("observing"), torch.enable_grad():
                prediction = Prediction(self._learnable(x))
            try:
                labels = prediction.label.unsqueeze(1)
                gradients = self._gradients(-prediction.log_p.gather(1, labels).mean())
            finally:
                self.adapted.discard()
            for name, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None:
                    total[name] += gradient**2
            count += 1
        if not count:
            raise InputError("Expected at least one batch of source images, but there was none.")
        if not _finite(list(total.values())):
            raise InputError("The gradients on the source images are not finite; look for NaN in the images.")
        return {name: value / count for name, value in total.items()}

    @staticmethod
    def _not_finite(learnt: Mapping[str, Sequence[Tensor | None]]) -> str | None:
        """Return what of it is not finite, in words, or None."""
        if _finite(list(itertools.chain(*learnt.values()))):
            return None
        return f"not finite: {', '.join(name for name, values in learnt.items() if not _finite(values))}"

    def _gradients(self, loss: Tensor) -> list[Tensor | None]:
        with self._phase("replaying"):
            parameters = list(self.adapted.parameters.values())
            own: list[Tensor | None] = list(torch.autograd.grad(loss, parameters, allow_unused=True))
        return own if self.ranks is None else self.ranks.add(own)

    def _commit(
        self,
        prediction: Prediction,
        gradients: list[Tensor | None],
        memory: State,
        selected: Tensor | None,
    ) -> None:
        """Everything that could fail has been computed: change the state."""
        with torch.no_grad():
            if self.optimizer is not None and gradients:
                parameters = list(self.adapted.parameters.values())
                users = [p.grad for p in parameters]
                for p, gradient in zip(parameters, gradients, strict=True):
                    p.grad = gradient
                try:
                    self.optimizer.step()  # line 9
                finally:
                    for p, own in zip(parameters, users, strict=True):
                        p.grad = own
            for norm in self.adapted.norms.values():
                norm.commit()
            if self.shares is not None:
                self.shares.commit()
            if self.postprocess is not None:
                self.postprocess.commit()
            self.objective_memory = memory
            if self.reweighting is not None:  # line 10
                before = self.reweighting_memory
                self.reweighting_memory = self.reweighting.next_state(prediction, before, selected)
            if self.dependence is not None:
                self.dependence.look(prediction)
            self.classes = prediction.classes


def _build(name: str | None, settings: Settings) -> Any:
    return None if name is None else COMPONENTS[name].build(settings)


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
