"""Streams in which one domain follows another: how well changes are noticed, and what noticing them is worth.

    python benchmarks/domains.py [--networks NAME ...] [--samples 1500]

The domains are the validation corruptions and clean images, in one stream without a reset. First, in standard
deviations, how far the sharpness of batches lies from the batches before it: the most within a domain, and the least at
a change (`rules/domain.py`). Then class-mean accuracy in percent of Source, the paper's tent+delta, `adapt(model)`,
and `adapt(model)` that notices no change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from cells import batch_norm_networks, options
from delta_tta.adapt import RECOMMENDED
from delta_tta.corruptions.constants import VALIDATION
from delta_tta.experiments.cell import CLEAN, Cell
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.runner import default_cache
from delta_tta.rules import domain
from delta_tta.rules.domain import Domain
from delta_tta.shares.sharpness import sharpness
from delta_tta.streams import StreamSpec

DOMAINS = (VALIDATION[0], CLEAN, *VALIDATION[1:])
STREAMS = (StreamSpec("IS+CB"), StreamSpec("DS+CB", rho=0.1), StreamSpec("DS+CB", rho=0.01))


def distances(lab: Lab, cell: Cell) -> tuple[float, float]:
    """Return the largest distance of a batch from its own domain, and the smallest of a first batch from the last."""
    within, changes, last = [0.0], [], None
    for name in cell.corruptions:
        now = Domain()
        one = replace(cell, corruptions=(name,), order="each")
        images = lab.images(cell.place, name, cell.severity)
        for x, _ in images.batches(list(lab.stream(one)), cell.batch_size):
            found = sharpness(x.float()) if len(x) == cell.batch_size else None
            if found is None:
                continue
            if last is not None:
                changes.append(last.distance(found))
            elif now.batches >= domain.LEAST:
                within.append(now.distance(found))
            now, last = now.with_batch(found), None
        last = now
    return max(within), min(changes)


@contextmanager
def noticing_nothing() -> Iterator[None]:
    """Let no batch be far enough off."""
    usual, domain.FAR = domain.FAR, np.inf
    try:
        yield
    finally:
        domain.FAR = usual


def row(lab: Lab, cell: Cell) -> Sequence[float]:
    """Return the accuracies in percent."""
    methods = [lab.run(replace(cell, method=method)) for method in ("source", "tent+delta", RECOMMENDED)]
    with noticing_nothing():
        methods.append(lab.run(replace(cell, method=RECOMMENDED)))
    return [100 * result.class_mean_accuracy for result in methods]


def main() -> None:
    """Run the command."""
    parser = options(__doc__, samples=1500, about_samples="of each domain")
    parser.add_argument("--sizes", type=int, nargs="+", default=[64], help="of batches")
    parser.add_argument("--distances-only", action="store_true", help="run no network")
    given = parser.parse_args()
    lab = Lab(default_cache())
    print(
        "| | within a domain, at most | at a change, at least | Source | tent+delta | adapt(model) | noticing nothing |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for network in batch_norm_networks(given):
        for stream in STREAMS:
            place = (network.few if stream.dependent else None) or network.place
            for size in given.sizes:
                cell = Cell(place, "source", stream, DOMAINS, batch_size=size, samples=given.samples, order="continual")
                most, least = distances(lab, cell)
                accuracies = [] if given.distances_only else row(lab, cell)
                shown = " | ".join(f"{value:.1f}" for value in (most, least, *accuracies))
                print(f"| {network.name}, {stream}, B = {size} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
