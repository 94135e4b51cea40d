"""How to use the cores: the same cells with one process of many threads, and with many processes of one thread.

python benchmarks/engine.py [--images 1000]

Prints cells a minute of each way relative to one process of one thread, all in one run (each way twice, interleaved;
the better of the two counts, as other work on the machine only slows). Starting the processes is counted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from delta_tta.experiments.experiment import Experiment, Place
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.local_engine import Workers, cores
from delta_tta.experiments.runner import Plan, run
from delta_tta.experiments.store import Store


def measured(plan: Plan, cache: Path, workers: int, threads: int) -> float:
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store.db") as store:
        start = time.perf_counter()
        run(plan, store, Workers(cache, workers, threads))
        return len(plan.cells) / (time.perf_counter() - start) * 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    args = parser.parse_args()
    count = cores()
    ways = sorted({(1, 1), (1, count), (count, 1), (max(1, count // 2), min(2, count))})
    with tempfile.TemporaryDirectory() as cache:
        methods = ("bn", "tent", "tent+delta", "ent-w+delta")
        experiment = Experiment(methods, Place(images=args.images), seeds=(2020, 2021))
        plan = Plan.of(experiment.cells(), Lab(Path(cache)))
        rates: dict[tuple[int, int], list[float]] = {way: [] for way in ways}
        for _ in range(2):
            for way in ways:
                rates[way].append(measured(plan, Path(cache), *way))
    base = max(rates[1, 1])
    print(f"{len(plan.cells)} cells of {args.images} images on {count} cores\n")
    print("| processes × threads | cells a minute | / one process of one thread |\n|---|---|---|")
    for (workers, threads), found in rates.items():
        print(f"| {workers} × {threads} | {max(found):.0f} | {max(found) / base:.2f} |")


if __name__ == "__main__":
    main()
