"""What torch.compile gains: steps of compiled and plain models in turn, and the seconds until they are compiled.

python benchmarks/compiled.py [--networks "CIFAR ResNet-20"] [--batch-sizes 64] [--methods tent+delta]
"""

from __future__ import annotations

import argparse
import copy
import platform
import time

import torch

import delta_tta
from measure import interleaved, ratio
from networks import NETWORKS

METHODS = ("tent", "tent+delta", "tema", "anchored+mirror+sticky")


def measured(name: str, size: int, method: str, seconds: float) -> tuple[float, float]:
    """Return compiled / plain, and the seconds that compiling took."""
    build, pixels = NETWORKS[name]
    torch.compiler.reset()
    torch.manual_seed(0)
    net, x = build(), torch.randn(size, 3, pixels, pixels)
    plain = delta_tta.adapt(copy.deepcopy(net), method, "cifar100-c", update="every")
    compiled = delta_tta.adapt(copy.deepcopy(net), method, "cifar100-c", update="every", compile=True)
    start = time.perf_counter()
    for _ in range(8):  # the first batches start the averages, and anchored statistics compare their shares
        plain(x)
        compiled(x)
    took = time.perf_counter() - start
    times = interleaved({"plain": lambda: plain(x), "compiled": lambda: compiled(x)}, seconds)
    return ratio(times, "compiled", "plain"), took - 8 * min(times["plain"] + times["compiled"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=["CIFAR ResNet-20"], metavar="NAME")
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[64], metavar="B")
    parser.add_argument("--methods", nargs="+", default=METHODS, metavar="METHOD")
    parser.add_argument("--seconds", type=float, default=10, help="for each pair that is timed (default: 10)")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}\n")
    print("| network, B | method | compiled / plain | seconds to compile |\n|---|---|---|---|")
    for name in options.networks:
        for size in options.batch_sizes:
            for method in options.methods:
                gained, took = measured(name, size, method, options.seconds)
                print(f"| {name}, {size} | {method} | {gained:.3f} | {took:.0f} |", flush=True)


if __name__ == "__main__":
    main()
