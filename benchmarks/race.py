"""All methods on the same streams: accuracy and cost, as a table and as a picture.

    python benchmarks/race.py [METHOD ...] [--networks NAME ...] [--samples 320] [--out race.png]   # about an hour

Each method runs on two test corruptions and clean images on each network with batch norm, or, with --without-batch-
norm, on each without, shuffled (IS+CB) and dependent (DS+CB, ρ=0.1), and on all 15 corruptions one after another
without a reset ("continual", both orders), in batches of 64. With more classes than samples there is no continual
stream: that would take an image of each class and corruption. Prints class-mean accuracy in percent and the time of a
batch relative to plain eval on ResNet-20 (without batch norm: on the first of the networks), medians of batches that
were timed in turn. The picture shows accuracy against cost; a line joins the methods that no other beats in both.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

import delta_tta
from cells import cell_of, chosen, options, results
from delta_tta import data, models
from delta_tta.adapt import RECOMMENDED, WITHOUT_BATCH_NORM
from delta_tta.corruptions.constants import TYPES
from delta_tta.experiments.evaluate import Result
from delta_tta.experiments.experiment import CLEAN, FAMILIES, Cell, Place
from delta_tta.recipe import used_settings
from delta_tta.streams import StreamSpec
from development import Network, networks

METHODS = (
    "source", "bn", "tema", "rbn", "iabn", "unmix-tns", "bbn", "lame", "t3a", "tent", "pl", "ent-w", "eta", "rdumb",
    "sar", "deyo", "note", "rotta", "roid", "cmf", "tent+delta", "ent-w+delta", "anchored", "anchored+sticky",
    RECOMMENDED,
)  # fmt: skip
NO_BATCH_NORM = (
    "source", "neo", "lame", "t3a", "tent", "pl", "ent-w", "eta", "rdumb", "sar", "deyo", "roid", "cmf", "tent+dot",
    "source+sticky", WITHOUT_BATCH_NORM, "tent+dot+mirror+sticky",
)  # fmt: skip
OURS = (RECOMMENDED, WITHOUT_BATCH_NORM)
ORDERS = {"shuffled": StreamSpec("IS+CB"), "dependent": StreamSpec("DS+CB", rho=0.1)}
CORRUPTIONS = (*FAMILIES[:2], CLEAN)
BATCH = 64
PANELS: dict[str, Callable[[str], bool]] = {
    "shuffled": lambda label: label.endswith("shuffled") and "continual" not in label,
    "dependent": lambda label: label.endswith("dependent") and "continual" not in label,
    "continual, both orders": lambda label: "continual" in label,
}
SHOWN = (*OURS, "tent+delta", "roid", "rotta", "bn")
TIMED, WARM = 40, 16
"""Batches for the cost, and how many of them warm up; later the recommended method compares its candidates rarely."""


def columns(network: Network, method: str, samples: int) -> dict[str, list[Cell]]:
    """Return the runs of a method on a network, by column of the table."""
    found: dict[str, list[Cell]] = {}
    for label, stream in ORDERS.items():
        for corruption in CORRUPTIONS:
            kind = "clean" if corruption == CLEAN else "corrupted"
            cell = cell_of(network, corruption, stream, samples, method)
            found.setdefault(f"{kind}, {label}", []).append(cell)
        if network.classes > samples:
            continue
        place = dataclasses.replace(network.place, images=max(network.classes, samples // 4))
        found[f"continual, {label}"] = [Cell(place, method, stream, TYPES, order="continual", batch_size=BATCH)]
    return found


def accuracy(cells: Sequence[Cell], result: Callable[[Cell], Result]) -> float:
    """Return the mean class-mean accuracy in percent, of several domains the mean over them."""
    found = [result(cell) for cell in cells]
    return 100 * statistics.fmean(
        statistics.fmean(one.domains.values()) if one.domains else one.class_mean_accuracy for one in found
    )


def costs(methods: Sequence[str], place: Place) -> dict[str, float]:
    """Return the median time of a batch over that of plain eval, on a network and noisy images of CIFAR-10."""
    torch.set_num_threads(1)
    images = data.in_memory(data.Corrupted(data.Subset(data.demo(), 5 * BATCH), "gaussian_noise", severity=5))
    named = models.load(place.model, place.weights)
    batches = [named.normalisation(x) for x, _ in images.batches(range(4 * BATCH), BATCH)]
    net = named.model.eval()

    def plain(x: Tensor) -> Tensor:
        with torch.inference_mode():
            return net(x)

    calls: dict[str, Callable[[Tensor], Tensor]] = {"plain": plain}
    for method in methods:
        given = used_settings(method, {"mean": named.normalisation.mean, "std": named.normalisation.std})
        calls[method] = delta_tta.adapt(copy.deepcopy(net), method, "cifar10-c", **given)
    times = timed(calls, batches)
    return {method: times[method] / times["plain"] for method in methods}


def timed(calls: dict[str, Callable[[Tensor], Tensor]], batches: Sequence[Tensor]) -> dict[str, float]:
    """Return the median seconds of each call, which take turns, after they have warmed up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(TIMED):
        for name, call in calls.items():
            start = time.perf_counter()
            call(batches[turn % len(batches)])
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds[WARM:]) for name, seconds in times.items()}


def front(points: dict[str, tuple[float, float]]) -> list[str]:
    """Return the methods that no other beats in cost and accuracy, cheapest first."""
    best, found = float("-inf"), []
    for name, (_, value) in sorted(points.items(), key=lambda item: (item[1][0], -item[1][1])):
        if value > best:
            best = value
            found.append(name)
    return found


def picture(points: dict[str, dict[str, tuple[float, float]]], path: Path) -> None:
    """Draw accuracy against cost, a panel for each kind of stream."""
    figure = Figure(figsize=(13, 5), layout="constrained")
    for axis, (label, own) in zip(figure.subplots(1, len(points)), points.items(), strict=True):
        best = front(own)
        axis.plot([own[m][0] for m in best], [own[m][1] for m in best], color="0.7", zorder=0)
        low, high = min(value for _, value in own.values()), max(value for _, value in own.values())
        labelled: list[tuple[float, float]] = []
        for name in sorted(own, key=lambda name: (name not in SHOWN, name not in best)):
            cost, value = own[name]
            axis.scatter(cost, value, s=18, color="C3" if name in OURS else "C0" if name in best else "0.5")
            place = math.log(cost) / 2, (value - low) / (high - low)
            near = any(abs(place[0] - x) < 0.16 and abs(place[1] - y) < 0.03 for x, y in labelled)
            if (name in best or name in SHOWN) and not near:
                labelled.append(place)
                shown = "adapt(model)" if name in OURS else name
                axis.annotate(shown, (cost, value), textcoords="offset points", xytext=(4, 3), fontsize=8)
        axis.set(title=label, xlabel="time of a batch / plain eval", xscale="log", xticks=(1, 1.5, 2, 3, 4, 6))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")
        axis.grid(alpha=0.3)
    figure.axes[0].set_ylabel("class-mean accuracy, %")
    figure.savefig(path, dpi=100)


def main() -> None:
    """Run the command."""
    parser = options(__doc__, samples=320)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help="instead of all")
    parser.add_argument("--without-batch-norm", action="store_true", help="the networks without, and their methods")
    parser.add_argument("--out", type=Path, default=Path("race.png"), help="the picture")
    parser.add_argument("--store", type=Path, default=Path("race.db"))
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    methods = given.methods or (NO_BATCH_NORM if given.without_batch_norm else METHODS)
    alike = [one for one in networks(given.development)[0] if (one.norm != "batch") == given.without_batch_norm]
    found = chosen(alike, given.networks)
    runs = {method: [(network, columns(network, method, given.samples)) for network in found] for method in methods}
    wanted = [cell for of in runs.values() for _, own in of for cells in own.values() for cell in cells]
    result = results(wanted, given.store, given.workers)
    cost = costs(methods, found[0].place if given.without_batch_norm else Place())
    labels = [one for one in runs[methods[0]][0][1] if all(one in cells for _, cells in runs[methods[0]])]
    print(f"{', '.join(network.name for network in found)}; {given.samples} samples a stream.\n")
    print(f"| method | time / eval | {' | '.join(labels)} | mean |\n|{'---|' * (3 + len(labels))}")
    points: dict[str, dict[str, tuple[float, float]]] = {panel: {} for panel in PANELS}
    for method, own in runs.items():
        values = {label: statistics.fmean(accuracy(cells[label], result) for _, cells in own) for label in labels}
        for panel, belongs in PANELS.items():
            if own_labels := [label for label in labels if belongs(label)]:
                points[panel][method] = cost[method], statistics.fmean(values[label] for label in own_labels)
        shown = " | ".join(f"{value:.1f}" for value in (*values.values(), statistics.fmean(values.values())))
        name = f"`adapt(model)` ({method})" if method in OURS else method
        print(f"| {name} | {cost[method]:.2f} | {shown} |")
    picture({panel: own for panel, own in points.items() if own}, given.out)


if __name__ == "__main__":
    main()
