"""Whether learning pays on top of `adapt(model)`, and whether filtered answers are better to learn from, by streams.

    python benchmarks/feedback.py [--networks NAME ...] [--corruptions NAME ...] [--samples 1000]

Five ways, all answering with anchored statistics, mirror images and the filter:

    none        nothing is trained: `adapt(model)`
    tent        the entropy of the model's own answers
    tent+dot    the same, weighed by DOT
    filtered    cross entropy against the filtered answers, which are right more often on dependent streams
    agreed      the entropy of the samples on which the filter does not change the answer

Prints the class-mean accuracy of the first in percent, and the change by each of the others in points. On validation
corruptions and clean images, in batches of 64.
"""

from __future__ import annotations

import statistics

import torch
from torch import Tensor

import delta_tta
from cells import cell_of, cell_options, chosen_cells
from delta_tta.adapt import RECOMMENDED
from delta_tta.experiments.cell import Cell
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.runner import default_cache
from delta_tta.metrics import class_mean_accuracy
from delta_tta.objectives import Objective
from delta_tta.postprocess.sticky import Sticky
from delta_tta.prediction import Prediction
from delta_tta.registry import State
from delta_tta.settings import Settings

WAYS = {
    "none": RECOMMENDED,
    "tent": f"tent+{RECOMMENDED}",
    "tent+dot": f"tent+dot+{RECOMMENDED}",
    "filtered": f"tent+{RECOMMENDED}",
    "agreed": f"tent+{RECOMMENDED}",
}


class FromFilter(Objective):
    """A loss that listens to the filter."""

    def __init__(self, settings: Settings, way: str) -> None:
        super().__init__(settings)
        self._way, self._heard = way, Sticky(Settings(filter="smooth"))

    def loss(self, prediction: Prediction, state: State) -> tuple[Tensor, Tensor | None]:
        answers, after = self._heard.answer(prediction.log_p.detach())
        self._heard.commit(after)
        if self._way == "filtered":
            return -(answers.softmax(1) * prediction.log_p).sum(1), None
        return prediction.entropy, answers.argmax(1) == prediction.label


def accuracy(lab: Lab, cell: Cell, way: str) -> float:
    """Run one way over one stream."""
    named, said, labels = lab.model(cell.place), [], []
    adapter = delta_tta.adapt(named.model, WAYS[way], cell.place.preset)
    if way in ("filtered", "agreed"):
        adapter._updater.objective = FromFilter(adapter.settings, way)
    images = lab.images(cell.place, cell.corruptions[0], cell.severity)
    try:
        for x, y in images.batches(list(lab.stream(cell)), cell.batch_size):
            said.append(adapter(named.normalisation(x)).argmax(1))
            labels.append(y)
    finally:
        adapter.unload()
    return 100 * class_mean_accuracy(torch.cat(said), torch.cat(labels))


def main() -> None:
    """Run the command."""
    given = cell_options(__doc__, samples=1000).parse_args()
    lab = Lab(default_cache())
    others = [way for way in WAYS if way != "none"]
    print(f"| | none | {' | '.join(others)} |\n|{'---|' * (2 + len(others))}", flush=True)
    changes: dict[str, list[list[float]]] = {"shuffled": [], "dependent": []}
    for network, corruption, stream in chosen_cells(given):
        cell = cell_of(network, corruption, stream, given.samples)
        base = accuracy(lab, cell, "none")
        change = [accuracy(lab, cell, way) - base for way in others]
        changes["dependent" if stream.dependent else "shuffled"].append(change)
        shown = " | ".join(f"{points:+.1f}" for points in change)
        print(f"| {network.name}, {corruption.replace('_', ' ')}, {stream} | {base:.1f} | {shown} |", flush=True)
    for kind, rows in changes.items():
        for label, of in (("mean", statistics.fmean), ("worst", min)):
            if rows:
                shown = " | ".join(f"{of(column):+.1f}" for column in zip(*rows, strict=True))
                print(f"| {kind}, {label} | | {shown} |")


if __name__ == "__main__":
    main()
