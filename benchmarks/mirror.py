"""What a second opinion is worth, and whether its weight protects where it misleads, on validation corruptions.

    python benchmarks/mirror.py [--networks NAME ...] [--samples 512]

Each network answers images and another view of them: the mirror image; the mirror image where two fifths of the classes
turn into each other, as left and right arrows would; the image upside down; and transposed. Prints what the average
with the view adds to class-mean accuracy, in points: a plain mean over all samples, a plain mean over the less sure
half, and `+mirror`, which weighs the view by class. Then with how much it agrees.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import Tensor

import delta_tta
from cells import cell_of, chosen, options, validation_cells
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.runner import default_cache
from delta_tta.metrics import class_mean_accuracy
from delta_tta.postprocess.mirror import Mirror
from delta_tta.settings import Settings
from development import networks

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "mirror": lambda x: x.flip(3),
    "mirror, classes swapped": lambda x: x.flip(3),
    "upside down": lambda x: x.flip(2),
    "transposed": lambda x: x.transpose(2, 3),
}
WAYS = ("mean", "mean of the less sure half", "+mirror")


def swapped(p: Tensor) -> Tensor:
    """Return probabilities, (B, K), with two fifths of the classes exchanged in pairs."""
    order = torch.arange(p.shape[1])
    count = p.shape[1] // 5 * 2
    order[:count] = order[:count].view(-1, 2).flip(1).flatten()
    return p[:, order]


def answers(logits: list[Tensor], views: list[Tensor]) -> dict[str, Tensor]:
    """Return what each way answers, class by class, for the whole stream."""
    made: dict[str, list[Tensor]] = {way: [] for way in WAYS}
    mirror = Mirror(torch.nn.Identity(), Settings())
    for own, view in zip(logits, views, strict=True):
        mean = own.softmax(1) + view.softmax(1)
        unsure = mirror._unsure(own.log_softmax(1).amax(1))
        made["mean"].append(mean.argmax(1))
        made["mean of the less sure half"].append(torch.where(unsure, mean.argmax(1), own.argmax(1)))
        index = torch.arange(len(own), dtype=torch.float32).view(-1, 1, 1, 1)  # stands for the images
        answer = mirror(index, own, lambda some, view=view: view[some.flatten().long()])
        mirror.commit()
        made["+mirror"].append(answer.argmax(1))
    return {way: torch.cat(labels) for way, labels in made.items()}


def main() -> None:
    """Run the command."""
    given = options(__doc__, samples=512).parse_args()
    lab = Lab(default_cache())
    gained: dict[tuple[str, str], list[float]] = {}
    for network, corruption, stream in validation_cells(chosen(networks(given.development)[0], given.networks)):
        cell = cell_of(network, corruption, stream, given.samples)
        if cell.stream.dependent:
            continue
        named, labels = lab.model(cell.place), []
        adapter = delta_tta.adapt(named.model, "anchored" if network.norm == "batch" else "source", cell.place.preset)
        own: list[Tensor] = []
        views: dict[str, list[Tensor]] = {name: [] for name in VIEWS}
        for images, targets in lab.images(cell.place, corruption, 5).batches(list(lab.stream(cell)), 64):
            x = named.normalisation(images)
            own.append(adapter(x))
            labels.append(targets)
            for name, view in VIEWS.items():
                views[name].append(adapter.predict(view(x)))
        adapter.unload()
        views["mirror, classes swapped"] = [swapped(one) for one in views["mirror, classes swapped"]]
        truth = torch.cat(labels)
        alone = class_mean_accuracy(torch.cat(own).argmax(1), truth)
        for name in VIEWS:
            for way, said in answers(own, views[name]).items():
                points = 100 * (class_mean_accuracy(said, truth) - alone)
                gained.setdefault((name, way), []).append(points)
        print(f"{network.name}, {corruption}: {100 * alone:.1f}", flush=True)
    print(f"\n| view | {' | '.join(f'{way}: mean | worst' for way in WAYS)} |\n|{'---|' * (1 + 2 * len(WAYS))}")
    for name in VIEWS:
        cells = [f"{statistics.fmean(gained[name, way]):+.1f} | {min(gained[name, way]):+.1f}" for way in WAYS]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
