"""CoTTA (Wang et al. 2022): a student learns from a slow teacher that averages over augmented views.

Student, teacher and source are three sets of parameters of one model; there is no second copy of the modules. The views
are made only where the source is unsure of the batch. Resetting never between shifts is the paper's CoTTA*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from ..augmentations.views import views
from ..engine.draws import numbers
from ..engine.finite import not_finite
from ..engine.model import AdaptedModel
from ..engine.step import Update
from ..losses import cross_entropy
from ..norms.batch import BatchStatistics
from ..options import OptimizerOptions, SeedOptions, ViewOptions, require
from ..prediction import Prediction
from ..recipe import Recipe
from ..registry import State, component
from ..settings import Settings, on_cifar
from ..signals import Outcome
from ..tensors import at_least_float32
from .standalone import StandaloneUpdater

TEACHER = 0.999
"""Share of the teacher that stays at each step."""
GATES = ((10, 0.92), (100, 0.72))
"""The source's mean confidence below which views are made: for at most 10 and at most 100 classes; beyond, 0.1."""


@dataclass(frozen=True)
class CottaOptions(SeedOptions, ViewOptions, OptimizerOptions):
    """Settings of CoTTA.

    Attributes:
        gate: CoTTA makes views where the source's mean confidence is below it; None takes 0.92 for at most 10 classes,
            0.72 for at most 100, else 0.1.
        restore: share of CoTTA's weights that fall back to the source at each step.
        symmetric: whether CoTTA's loss goes both ways.
    """

    gate: float | None = None
    restore: float = 0.001
    symmetric: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require("gate", self.gate, self.gate is None or 0 <= self.gate <= 1, "between 0 and 1")
        require("restore", self.restore, 0 <= self.restore <= 1, "between 0 and 1")


@component(
    "cotta", "standalone", "learn from a slow teacher over augmented views (CoTTA, Wang et al. 2022)", alone=True
)
class Cotta(StandaloneUpdater):
    """Trains all parameters; normalises with each batch's own statistics; answers with the teacher's logits."""

    Options = CottaOptions
    defaults: ClassVar[Mapping[str, Any]] = {"lr": 1e-2, "optimizer": "sgd"}
    defaults_by_preset: ClassVar[Mapping[str, Mapping[str, Any]]] = on_cifar(lr=1e-3, optimizer="adam")
    cost = 43.0

    layers = BatchStatistics

    def __init__(self, adapted: AdaptedModel, recipe: Recipe, settings: Settings) -> None:
        super().__init__(adapted, recipe, settings)
        self.options = settings.options(CottaOptions)

    def predict(self, x: Tensor) -> Tensor:
        """Answer as `observe` does."""
        with torch.no_grad():
            return self._target(x)

    def observe(self, x: Tensor, later: bool = False) -> tuple[Tensor, Update]:
        """Answer with the teacher; the student learns after."""
        with torch.no_grad():
            target = self._target(x)
        return target.clone() if later else target, lambda: self._teach(x, target)

    def _target(self, x: Tensor) -> Tensor:
        with self.adapted.wearing(self.adapted.source):
            anchor = Prediction(self.logits(x))
        confidence = float(anchor.p.amax(1).mean())
        teacher = self._teacher()
        if confidence >= self._gate(anchor.classes):
            with self.adapted.wearing(teacher):
                return self.logits(x)
        generator, clean = self._generator(0), self._pixels.of(x)
        with self.adapted.wearing(teacher):
            # View by view, not all at once: batch statistics are those of one view of the batch.
            total = self.logits(self._pixels.back(views(clean, generator), x))
            for _ in range(1, self.options.views):
                total = total + self.logits(self._pixels.back(views(clean, generator), x))
        return total / self.options.views

    def _teach(self, x: Tensor, target: Tensor) -> Outcome:
        with torch.enable_grad():
            student = Prediction(self.learnable(x))
            teacher = Prediction(target)
            loss = cross_entropy(teacher.p, student.log_p).mean()
            if self.options.symmetric:
                loss = (loss + cross_entropy(student.log_p.exp(), teacher.log_p.detach()).mean()) / 2
        gradients = self.gradients(loss)
        wrong = not_finite({"prediction": [student.p, teacher.p], "loss": [loss.detach()], "gradient": gradients})
        if wrong is None:
            self._commit(student, gradients, None)
            self._follow_and_restore()
        return Outcome(loss=float(loss.detach()), entropy=float(teacher.entropy.mean()), used=1.0, skipped=wrong)

    @torch.no_grad()
    def _follow_and_restore(self) -> None:
        """Move the teacher to the student; then let random elements of the student fall back to the source."""
        before = self._teacher()
        memory: State = {}
        generator, source = self._generator(1), self.adapted.source
        for name, p in self.adapted.parameters.items():
            wide = at_least_float32(p)
            memory[f"teacher.{name}"] = torch.lerp(wide, before[name].to(wide), TEACHER)
            back = torch.rand(p.shape, generator=generator).to(p.device) < self.options.restore
            p[back] = source[name].to(p)[back]
        memory["step"] = torch.tensor(float(self._step() + 1))
        self.objective_memory = memory

    def _teacher(self) -> Mapping[str, Tensor]:
        names = self.adapted.parameters
        memory = self.objective_memory
        return {name: memory[f"teacher.{name}"] for name in names} if memory else self.adapted.source

    def _step(self) -> int:
        return int(self.objective_memory["step"]) if self.objective_memory else 0

    def _generator(self, use: int) -> Generator:
        """Return the random numbers of this step: a saved state goes on with the same."""
        return numbers(self.options.seed, 2 * self._step() + use)

    def _gate(self, classes: int) -> float:
        if self.options.gate is not None:
            return self.options.gate
        return next((gate for most, gate in GATES if classes <= most), 0.1)

    def bake(self) -> None:
        """A plain model answers as the teacher does."""
        teacher = self._teacher()
        with torch.no_grad():
            for name, p in self.adapted.parameters.items():
                p.copy_(teacher[name])
