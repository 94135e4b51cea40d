"""RoTTA (Yuan, Xie and Li 2023): learns from a memory that is balanced over the predicted classes, timely and sure.

After each 64 samples a student learns from its slow average, the teacher, on the memory: the teacher sees the images,
the student augmented ones. Both normalise with statistics of their own, which the memory moves (norms/robust.py). The
teacher answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..augmentations.views import views
from ..engine.finite import not_finite
from ..engine.model import AdaptedModel
from ..engine.optimizer import take_step
from ..norms.robust import RobustStatistics
from ..options import AlphaOptions, OptimizerOptions, SeedOptions
from ..prediction import Prediction
from ..recipe import Recipe
from ..registry import State, component
from ..settings import Settings
from ..tensors import at_least_float32
from .collecting import Collecting, Learnt, require_count, require_number
from .standalone import StandaloneUpdater

Averages = dict[str, tuple[Tensor, Tensor] | None]
"""Mean and standard deviation of each layer, by name."""


@dataclass(frozen=True)
class RottaOptions(SeedOptions, AlphaOptions, OptimizerOptions):
    """Settings of RoTTA.

    Attributes:
        rotta_capacity: N, samples in the memory.
        rotta_interval: samples from one update to the next.
        rotta_nu: ν, how far the teacher follows the student at each update.
        rotta_lambda_t: weight of the age in the score by which a sample has to leave the memory.
        rotta_lambda_u: weight of the uncertainty in it.
    """

    rotta_capacity: int = 64
    rotta_interval: int = 64
    rotta_nu: float = 0.001
    rotta_lambda_t: float = 1.0
    rotta_lambda_u: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("rotta_capacity", self.rotta_capacity)
        require_count("rotta_interval", self.rotta_interval)
        require_number("rotta_nu", self.rotta_nu, 0, 1)
        require_number("rotta_lambda_t", self.rotta_lambda_t, 0)
        require_number("rotta_lambda_u", self.rotta_lambda_u, 0)


@dataclass
class Kept:
    """A sample of the memory: its uncertainty and age, and the number by which its image is found."""

    uncertainty: float
    age: float
    number: int


class Memory:
    """Category-balanced sampling with timeliness and uncertainty (CSTU)."""

    def __init__(self, classes: int, options: RottaOptions) -> None:
        self.rooms: list[list[Kept]] = [[] for _ in range(classes)]
        self.options = options

    def score(self, kept: Kept) -> float:
        """H = λ_t / (1 + exp(−age / N)) + λ_u U / ln K: the higher, the sooner it leaves."""
        o = self.options
        timely = o.rotta_lambda_t / (1 + math.exp(-kept.age / o.rotta_capacity))
        return timely + o.rotta_lambda_u * kept.uncertainty / math.log(len(self.rooms))

    def add(self, label: int, uncertainty: float, number: int) -> None:
        """Offer a sample; those kept grow older by one."""
        new = Kept(uncertainty, 0, number)
        if self._room_for(label, new):
            self.rooms[label].append(new)
        for room in self.rooms:
            for kept in room:
                kept.age += 1

    def _room_for(self, label: int, new: Kept) -> bool:
        """Let a sample of higher score leave where there is no room; without one there is none for the new."""
        sizes = [len(room) for room in self.rooms]
        if sizes[label] >= self.options.rotta_capacity / len(self.rooms):
            crowded = [label]
        elif sum(sizes) < self.options.rotta_capacity:
            return True
        else:
            crowded = [k for k, size in enumerate(sizes) if size == max(sizes)]
        candidates = [(self.score(kept), k, i) for k in crowded for i, kept in enumerate(self.rooms[k])]
        score, k, i = max(candidates)  # of equal ones the last
        if score <= self.score(new):
            return False
        del self.rooms[k][i]
        return True


@component(
    "rotta", "standalone", "learn from a slow teacher on a balanced memory (RoTTA, Yuan et al. 2023)", alone=True
)
class Rotta(Collecting, StandaloneUpdater):
    """Trains γ and β of batch norms; answers with the teacher's logits."""

    Options = RottaOptions
    defaults: ClassVar[Mapping[str, Any]] = {"lr": 1e-3, "optimizer": "adam", "alpha": 0.95}

    layers = RobustStatistics

    def __init__(self, adapted: AdaptedModel, recipe: Recipe, settings: Settings) -> None:
        super().__init__(adapted, recipe, settings)
        self.options = settings.options(RottaOptions)
        self.interval = self.options.rotta_interval

    def predict(self, x: Tensor) -> Tensor:
        """Answer with the teacher."""
        self._pixels.of(x)  # raises where x is no image, before anything is learnt
        with torch.no_grad():
            with self.adapted.wearing(self._teacher()):
                logits = self.logits(x)
            return self.corrected(x, logits)

    def keep(self, x: Tensor, seen: Prediction, position: int) -> State:
        """Let the samples into the memory, one by one."""
        memory, known = Memory(seen.classes, self.options), self.numbers("labels")
        of_kept = zip(known, self.numbers("uncertainty"), self.numbers("age"), strict=True)
        for number, (label, uncertainty, age) in enumerate(of_kept):
            memory.rooms[int(label)].append(Kept(uncertainty, age, number))
        uncertainties = -(seen.p * (seen.p + 1e-6).log()).sum(1)
        for i, (label, uncertainty) in enumerate(zip(seen.label.tolist(), uncertainties.tolist(), strict=True)):
            memory.add(label, uncertainty, len(known) + i)
        kept = [(float(k), one) for k, room in enumerate(memory.rooms) for one in room]
        return {
            "images": self.chosen(x, [one.number for _, one in kept]),
            "labels": torch.tensor([k for k, _ in kept]),
            "uncertainty": torch.tensor([one.uncertainty for _, one in kept], dtype=seen.p.dtype),
            "age": torch.tensor([one.age for _, one in kept]),
        }

    def train(self, images: Tensor) -> Learnt:
        """Let the student learn from the teacher, and the teacher follow."""
        age = self.objective_memory["age"].to(images.device) / self.options.rotta_capacity
        weight = torch.sigmoid(-age)  # exp(−age) / (1 + exp(−age))
        pixels = views(self._pixels.of(images), self.generator(self.interval), together=True)
        strong = self._pixels.back(pixels, images)
        with self.adapted.wearing(self._teacher()), self.in_phase("observing"):
            teacher = Prediction(self.logits(images))
        of_teacher = self._moved()
        with self._averages(self._of_student()):
            with self.in_phase("observing"), torch.enable_grad():
                student = Prediction(self.learnable(strong))
                each = -(teacher.p * student.log_p).sum(1)
                loss = (each * weight.to(each.dtype)).mean()
            gradients = self.gradients(loss)
            of_student = self._moved()
        measured = [t for averages in (of_teacher, of_student) for pair in averages.values() for t in pair or ()]
        wrong = not_finite({"loss": [loss.detach()], "gradient": gradients, "statistics": measured})
        if wrong is None:
            self._follow(gradients, of_teacher, of_student)
        return float(loss.detach()), wrong

    def _follow(self, gradients: list[Tensor | None], of_teacher: Averages, of_student: Averages) -> None:
        """Take the student's step, then move the teacher towards it."""
        parameters, teacher = self.adapted.parameters, self._teacher()
        assert self.optimizer is not None
        take_step(self.optimizer, list(parameters.values()), gradients)
        memory = self.objective_memory
        for name, p in parameters.items():
            wide = at_least_float32(p.detach())
            memory[f"teacher.{name}"] = torch.lerp(teacher[name].to(wide), wide, self.options.rotta_nu)
        for name, pair in of_student.items():
            if pair is not None:
                memory[f"student_mean.{name}"], memory[f"student_std.{name}"] = pair
        self._put(of_teacher)

    def _teacher(self) -> Mapping[str, Tensor]:
        memory, names = self.objective_memory, self.adapted.parameters
        if any(f"teacher.{name}" in memory for name in names):
            return {name: memory[f"teacher.{name}"] for name in names}
        return self.adapted.source

    def _of_student(self) -> Averages:
        """Return the student's statistics; the layers hold the teacher's, which are the same before an update."""
        memory = self.objective_memory
        return {
            name: (memory[f"student_mean.{name}"], memory[f"student_std.{name}"])
            if f"student_mean.{name}" in memory
            else own
            for name, own in self._held().items()
        }

    def _robust(self) -> dict[str, RobustStatistics]:
        return {name: norm for name, norm in self.adapted.norms.items() if isinstance(norm, RobustStatistics)}

    def _held(self) -> Averages:
        return {name: norm.averages for name, norm in self._robust().items()}

    def _moved(self) -> Averages:
        """Return what the layers' observations move their statistics to, and forget these."""
        moved: Averages = {name: norm.moved() for name, norm in self._robust().items()}
        self.discard()
        return moved

    def _put(self, values: Averages) -> None:
        for name, norm in self._robust().items():
            norm.mean, norm.std = values[name] or (None, None)

    @contextmanager
    def _averages(self, values: Averages) -> Iterator[None]:
        """Let the layers have other statistics for a while."""
        own = self._held()
        self._put(values)
        try:
            yield
        finally:
            self._put(own)

    def bake(self) -> None:
        """A plain model answers as the teacher does."""
        teacher = self._teacher()
        with torch.no_grad():
            for name, p in self.adapted.parameters.items():
                p.copy_(teacher[name])
