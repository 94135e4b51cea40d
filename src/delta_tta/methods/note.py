"""NOTE (Gong et al. 2022): a memory that is a sample of the stream, balanced over the predicted classes.

Layers normalise with statistics that are corrected for each sample (norms/instance.py). After each 64 samples they
learn from the memory: γ and β by a step along the entropy of its predictions, the statistics by a slow moving average.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from ..engine.finite import not_finite
from ..engine.model import AdaptedModel
from ..engine.optimizer import take_step
from ..norms.instance import InstanceOptions, MovingInstanceAware
from ..options import OptimizerOptions, SeedOptions
from ..prediction import Prediction
from ..recipe import Recipe
from ..registry import State, component
from ..settings import Settings
from ..tensors import at_least_float32
from .collecting import Collecting, Learnt, require_count, require_number


@dataclass(frozen=True)
class NoteOptions(InstanceOptions, SeedOptions, OptimizerOptions):
    """Settings of NOTE.

    Attributes:
        note_capacity: samples in the memory.
        note_interval: samples from one update to the next.
        note_momentum: how far the memory moves the statistics at each update.
        note_temperature: that divides the logits whose entropy is minimised.
    """

    note_capacity: int = 64
    note_interval: int = 64
    note_momentum: float = 0.01
    note_temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("note_capacity", self.note_capacity)
        require_count("note_interval", self.note_interval)
        require_number("note_momentum", self.note_momentum, 0, 1)
        require_number("note_temperature", self.note_temperature, 1e-6)


class NoteLayer(MovingInstanceAware):
    """Instance-aware layers whose statistics move slowly."""

    @property
    def rate(self) -> float:
        """How far the memory moves the averages."""
        return self.settings.options(NoteOptions).note_momentum


class Reservoir:
    """Prediction-balanced reservoir sampling (PBRS): by class the numbers of the images that are kept."""

    def __init__(self, classes: int, capacity: int) -> None:
        self.rooms: list[list[int]] = [[] for _ in range(classes)]
        self.counts = [0.0] * classes
        self.capacity = capacity

    def add(self, label: int, number: int, generator: Generator) -> None:
        """Offer a sample; of a full memory one leaves for it.

        That is one of a class that has most, or, if its own class is among these, one of its own, with the probability
        that leaves each of the class's samples so far the same chance to be kept.
        """
        self.counts[label] += 1
        sizes = [len(room) for room in self.rooms]
        if sum(sizes) >= self.capacity:
            first, second = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
            largest = [k for k, size in enumerate(sizes) if size == max(sizes)]
            if label not in largest:
                room = self.rooms[largest[int(first * len(largest))]]
            elif first <= sizes[label] / self.counts[label]:
                room = self.rooms[label]
            else:
                return
            del room[int(second * len(room))]
        self.rooms[label].append(number)


@component(
    "note", "standalone", "instance-aware batch norm and a class-balanced memory (NOTE, Gong et al. 2022)", alone=True
)
class Note(Collecting):
    """Trains γ and β of batch norms; the answer to a sample does not depend on its batch."""

    Options = NoteOptions
    defaults: ClassVar[Mapping[str, Any]] = {"lr": 1e-4, "optimizer": "adam"}
    bakes = False

    layers = NoteLayer

    def __init__(self, adapted: AdaptedModel, recipe: Recipe, settings: Settings) -> None:
        super().__init__(adapted, recipe, settings)
        self.options = settings.options(NoteOptions)
        self.interval = self.options.note_interval

    def keep(self, x: Tensor, seen: Prediction, position: int) -> State:
        """Let the samples into the memory, one by one."""
        memory, known = Reservoir(seen.classes, self.options.note_capacity), self.numbers("labels")
        memory.counts = self.numbers("counts") or memory.counts
        for number, label in enumerate(known):
            memory.rooms[int(label)].append(number)
        for i, label in enumerate(seen.label.tolist()):
            memory.add(label, len(known) + i, self.generator(position + i))
        return {
            "images": self.chosen(x, [number for room in memory.rooms for number in room]),
            "labels": torch.tensor([float(k) for k, room in enumerate(memory.rooms) for _ in room]),
            "counts": torch.tensor(memory.counts),
        }

    def train(self, images: Tensor) -> Learnt:
        """Take one step along the entropy of the memory, and move the statistics."""
        with self.in_phase("observing"), torch.enable_grad():
            logits = at_least_float32(self.learnable(images))
            p = (logits / self.options.note_temperature).softmax(1)
            loss = -(p * (p + 1e-6).log()).mean()  # over samples and classes, as in the paper's own program
        gradients = self.gradients(loss)
        norms = self.adapted.norms.values()
        measured = [t for norm in norms for t in norm.measured()]
        wrong = not_finite({"loss": [loss.detach()], "gradient": gradients, "statistics": measured})
        if wrong is None:
            assert self.optimizer is not None
            take_step(self.optimizer, list(self.adapted.parameters.values()), gradients)
            for norm in norms:
                norm.commit()
        self.discard()
        return float(loss.detach()), wrong
