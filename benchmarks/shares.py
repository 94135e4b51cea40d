"""How well the share m of anchored statistics is chosen, on validation corruptions: the rule, its parts, and others.

    python benchmarks/shares.py [--networks NAME ...] [--corruptions NAME ...] [--samples 640]

All candidates answer every batch and its mirror images. Then each rule chooses from what they said, without labels, and
is compared with the best single m of each cell, which only labels tell. Prints class-mean accuracy in percent, and for
the rules that of the first 256 samples against m = 0, which is the source.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

import delta_tta
from cells import cell_of, cell_options, chosen_cells
from delta_tta.evidence import MEMORY, MEMORY_OF_ANSWERS, Array, of_order, of_pairs, tempered, until_next
from delta_tta.experiments.cell import Cell
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.runner import default_cache
from delta_tta.metrics import class_mean_accuracy
from delta_tta.norms.anchored import SHARES
from delta_tta.rules.answers import MeanAnswers
from delta_tta.rules.shares import DOUBT, OWN, PRIOR, PRIOR_OF_ORDER, Memory, best_slot

FIRST = 256
Rule = Callable[[float, float, float, float], float]
RULES: dict[str, Rule] = {
    "mirror + order": lambda order, mirror, g, h: mirror + order,
    "mirror": lambda order, mirror, g, h: mirror,
    "order": lambda order, mirror, g, h: order,
    "g − h": lambda order, mirror, g, h: g - h,
    "g − h + order": lambda order, mirror, g, h: g - h + order,
    "− h": lambda order, mirror, g, h: -h,
}
"""Scores of a candidate, per sample: g is the entropy of its mean answer, h the mean entropy of its answers."""


@dataclasses.dataclass(frozen=True)
class Said:
    """What the candidates said in one cell: log-probabilities by batch and candidate; sharpness; and the labels."""

    answers: list[list[Array]]
    mirrored: list[list[Array]]
    sharpness: list[Array | None]
    labels: Tensor

    def accuracy(self, chosen: Sequence[int]) -> tuple[float, float]:
        """Return the class-mean accuracy if these candidates answered, and the plain one at the start."""
        said = np.concatenate([answers[slot].argmax(1) for answers, slot in zip(self.answers, chosen, strict=True)])
        first = (said[:FIRST] == self.labels[:FIRST].numpy()).mean()
        return 100 * class_mean_accuracy(torch.from_numpy(said), self.labels), 100 * float(first)


def listen(lab: Lab, cell: Cell) -> Said:
    """Run all candidates on all batches."""
    named, answers, mirrored, sharp, labels = lab.model(cell.place), [], [], [], []
    adapter = delta_tta.adapt(named.model, "anchored", cell.place.preset)
    chooser = adapter._updater.shares
    assert chooser is not None

    def note(now: Memory, own: list, others: list, sharpness: Array | None) -> Memory:
        answers.append(chooser._log_p(own))
        mirrored.append(chooser._log_p(others))
        sharp.append(sharpness)
        return dataclasses.replace(now, due=now.batches + 1)

    chooser._compared = note  # type: ignore[method-assign, assignment]  # listens instead of choosing
    images = lab.images(cell.place, cell.corruptions[0], cell.severity)
    try:
        for x, y in images.batches(list(lab.stream(cell)), cell.batch_size):
            adapter(named.normalisation(x))
            labels.append(y)
    finally:
        adapter.unload()
    return Said(answers, mirrored, sharp, torch.cat(labels))


def choose(said: Said, rule: Rule) -> list[int]:
    """Return the candidate that a rule chooses at each batch."""
    slots = len(SHARES)
    sums, prior, due, chosen = np.zeros((slots, 3)), PRIOR, 0, []
    told, slot, lately = MeanAnswers(), 0, 0.0
    for batch, (answers, mirrored, sharp) in enumerate(zip(said.answers, said.mirrored, said.sharpness, strict=True)):
        if batch >= due:
            size = len(answers[0])
            early = (batch + 1) * size < PRIOR / 2
            due = batch + (1 if early else until_next(batch))
            keep, keep_answers = (math.exp(-size / memory) for memory in (MEMORY, MEMORY_OF_ANSWERS))
            prior, lately = keep_answers * prior, keep * lately + size
            p, others = ([tempered(one) for one in of] for of in (answers, mirrored))
            told, between = told.after(np.stack(p), sharp, keep_answers)
            q, q_of_order = told.at(between, prior), told.at(between, PRIOR_OF_ORDER)
            scores = []
            for s in range(slots):
                found = of_order(p[s], q_of_order[s]), of_pairs(p[s], others[s], q[s]), entropy(p[s][0]).sum()
                sums[s] = keep * sums[s] + found
                order, mirror, h = sums[s] / lately
                scores.append(rule(order, mirror, float(entropy(q[s][0].mean(0))), h))
            slot = best_slot(scores, DOUBT / lately)
        chosen.append(slot)
    return chosen


def entropy(p: Array) -> Array:
    """Return −Σ p log p over the last dimension."""
    found: Array = -(p * np.log(np.maximum(p, 1e-30))).sum(-1)
    return found


def main() -> None:
    """Run the command."""
    given = cell_options(__doc__, samples=640).parse_args()
    lab = Lab(default_cache())
    fixed = [f"m = {m:g}{' of the batch' if slot == OWN else ''}" for slot, m in enumerate(SHARES)]
    print(f"| | {' | '.join([*fixed, *RULES])} |\n|{'---|' * (1 + len(fixed) + len(RULES))}")
    lost: dict[str, list[float]] = {name: [] for name in RULES}
    early: dict[str, list[float]] = {name: [] for name in RULES}
    for network, corruption, stream in chosen_cells(given):
        said = listen(lab, cell_of(network, corruption, stream, given.samples))
        single = [said.accuracy([slot] * len(said.answers)) for slot in range(len(SHARES))]
        ruled = {name: said.accuracy(choose(said, rule)) for name, rule in RULES.items()}
        for name, (accuracy, first) in ruled.items():
            lost[name].append(accuracy - max(accuracy for accuracy, _ in single))
            early[name].append(first - single[0][1])
        values = " | ".join(f"{value:.1f}" for value, _ in (*single, *ruled.values()))
        print(f"| {network.name}, {corruption.replace('_', ' ')}, {stream} | {values} |", flush=True)
    blank = " | ".join("" for _ in fixed)
    for label, points, of in (
        ("mean against the best m", lost, statistics.fmean),
        ("worst", lost, min),
        (f"first {FIRST} samples against m = 0, mean", early, statistics.fmean),
        ("worst", early, min),
    ):
        print(f"| {label} | {blank} | {' | '.join(f'{of(own):+.1f}' for own in points.values())} |")


if __name__ == "__main__":
    main()
