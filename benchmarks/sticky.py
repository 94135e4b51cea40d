"""With how many samples of all classes the mean answer q of smooth filters starts, on validation corruptions.

    python benchmarks/sticky.py [--networks NAME ...] [--corruptions NAME ...] [--samples 640]

Dependent streams in batches of 64; each is answered by the source and by `anchored+mirror`, and filtered with each
start. Prints the class-mean accuracy in percent without a filter, the change by each filter in points, and the same for
the plain accuracy of the first 256 samples.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

import delta_tta
from cells import cell_of, cell_options, chosen_cells
from delta_tta.evidence import Array
from delta_tta.experiments.cell import Cell
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.runner import default_cache
from delta_tta.metrics import class_mean_accuracy
from delta_tta.postprocess.sticky import Sticky
from delta_tta.rules.answers import MeanAnswers
from delta_tta.settings import Settings
from delta_tta.shares.sharpness import sharpness_of_each

FIRST = 256
STARTS = ("8", "100", "K", "3 K")
METHODS = ("source", "anchored+mirror")


def answered(lab: Lab, cell: Cell, method: str) -> Iterator[tuple[Tensor, Array | None, Tensor]]:
    """Yield logits, sharpness and labels of each batch."""
    named = lab.model(cell.place)
    adapter = delta_tta.adapt(named.model, method, cell.place.preset)
    of = lab.images(cell.place, cell.corruptions[0], cell.severity)
    try:
        for x, y in of.batches(list(lab.stream(cell)), cell.batch_size):
            images = named.normalisation(x)
            yield adapter(images), sharpness_of_each(images), y
    finally:
        adapter.unload()


def filtered(batches: Sequence[tuple[Tensor, Array | None]], start: str) -> list[Tensor]:
    """Filter the answers; `MeanAnswers.at` is told to begin with another number of samples."""
    classes, original = batches[0][0].shape[1], MeanAnswers.at
    samples = {"K": classes, "3 K": 3 * classes}.get(start) or float(start)

    def at(own: MeanAnswers, places: Array, uniform: float) -> Array:
        return original(own, places, samples if uniform == classes else uniform)

    found, one = [], Sticky(Settings(filter="smooth"))
    MeanAnswers.at = at  # type: ignore[method-assign]  # with another start, for this run
    try:
        for logits, sharpness in batches:
            answer, state = one.answer(logits, None, sharpness)
            one.commit(state)
            found.append(answer)
    finally:
        MeanAnswers.at = original  # type: ignore[method-assign]  # as before
    return found


def scores(batches: list[Tensor], labels: Tensor) -> tuple[float, float]:
    """Return the class-mean accuracy, and the plain one at the start, in percent."""
    said = torch.cat(batches).argmax(1)
    first = (said[:FIRST] == labels[:FIRST]).float().mean()
    return 100 * class_mean_accuracy(said, labels), 100 * float(first)


def main() -> None:
    """Run the command."""
    given = cell_options(__doc__, samples=640).parse_args()
    lab = Lab(default_cache())
    print(f"| | unfiltered | {' | '.join(STARTS)} |\n|{'---|' * (2 + len(STARTS))}", flush=True)
    changes: dict[tuple[str, int], list[list[float]]] = {}
    for network, corruption, stream in chosen_cells(given):
        if not stream.dependent:
            continue
        for method in METHODS:
            cell = cell_of(network, corruption, stream, given.samples)
            batches, sharpness, targets = zip(*answered(lab, cell, method), strict=True)
            labels = torch.cat(targets)
            plain = scores(list(batches), labels)
            heard = list(zip(batches, sharpness, strict=True))
            change = [
                [new - old for new, old in zip(scores(filtered(heard, start), labels), plain, strict=True)]
                for start in STARTS
            ]
            changes.setdefault((method, network.classes), []).append([c for c, _ in change])
            changes.setdefault((f"{method}, first {FIRST}", network.classes), []).append([f for _, f in change])
            shown = " | ".join(f"{c:+.1f}, {f:+.1f}" for c, f in change)
            where = f"{network.name}, {corruption.replace('_', ' ')}, {method}"
            print(f"| {where} | {plain[0]:.1f}, {plain[1]:.1f} | {shown} |", flush=True)
    for (label, classes), rows in changes.items():
        means = [f"{statistics.fmean(column):+.1f} (worst {min(column):+.1f})" for column in zip(*rows, strict=True)]
        print(f"| {label}, {classes:,} classes | | {' | '.join(means)} |")


if __name__ == "__main__":
    main()
