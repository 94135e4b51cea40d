"""How a sweep grows with a Ray cluster: the same cells on one worker and on two, on this machine.

python benchmarks/cluster.py [--images 1000]

Prints cells a minute and the ratio. The cluster is started before the clock; the first fetch of data is counted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from delta_tta.experiments.experiment import Experiment, Place
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.ray_engine import RayEngine
from delta_tta.experiments.runner import Plan, run
from delta_tta.experiments.store import Store


def measured(plan: Plan, folder: Path, nodes: int) -> float:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(nodes):
        cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        with Store(folder / f"{nodes}-{time.time()}.db") as store:
            engine = RayEngine(folder / "cache", cpus=1)
            start = time.perf_counter()
            progress = run(plan, store, engine)
            assert progress.done == len(plan.cells), progress.failed
            return len(plan.cells) / (time.perf_counter() - start) * 60
    finally:
        ray.shutdown()
        cluster.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment(("bn", "tent", "tent+delta", "ent-w+delta"), Place(images=args.images), seeds=(1, 2))
        plan = Plan.of(experiment.cells(), Lab(Path(folder) / "cache"))
        rates = {nodes: max(measured(plan, Path(folder), nodes) for _ in range(2)) for nodes in (1, 2)}
    print(f"{len(plan.cells)} cells of {args.images} images\n\n| workers | cells a minute | / one |\n|---|---|---|")
    for nodes, rate in rates.items():
        print(f"| {nodes} | {rate:.0f} | {rate / rates[1]:.2f} |")


if __name__ == "__main__":
    main()
