"""What it costs to adapt together: a synchronised step against the same step alone, in turn, on every rank.

python benchmarks/sync.py [--ranks 2] [--rounds 15]

ResNet-20, 32 images of 32×32 on each rank, one thread each, gloo. Prints time ratios (medians, the slowest rank), and
how many messages of which size a step sends. NCCL takes the same path; its times are not these.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import Tensor

import delta_tta
from delta_tta.distributed import Ranks
from delta_tta.models.cifar import CifarResNet
from delta_tta.recipe import used_settings

B = 32
METHODS = ("bn", "tema", "tent", "tent+delta", "eta+delta")


class Counted:
    """Counts what goes through the exchanges of a rank."""

    def __init__(self) -> None:
        self.messages = self.numbers = 0
        gather, add = Ranks.gather, Ranks.add

        def counted_gather(ranks: Ranks, values: Tensor) -> Tensor:
            self.messages, self.numbers = self.messages + 1, self.numbers + values.numel()
            return gather(ranks, values)

        def counted_add(ranks: Ranks, tensors: list[Tensor | None]) -> list[Tensor | None]:
            self.messages += 1
            self.numbers += sum(t.numel() for t in tensors if t is not None)
            return add(ranks, tensors)

        Ranks.gather, Ranks.add = counted_gather, counted_add  # type: ignore[method-assign, assignment]  # to count


def work(rank: int, ranks: int, rounds: int, port: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    counted = Counted()
    torch.manual_seed(0)
    images = torch.randn(B, 3, 32, 32)
    norms = sum(isinstance(m, torch.nn.BatchNorm2d) for m in CifarResNet(20, 10).modules())
    if rank == 0:
        print(f"{ranks} ranks, {B} images each, {norms} norm layers\n")
        print("| method | together / alone | messages a step | KB sent a step |\n|---|---|---|---|")
    for method in METHODS:
        adapters = []
        for sync in (False, True):
            torch.manual_seed(0)
            net = CifarResNet(20, 10).eval()
            every = {"threshold": 2.0, "similarity": 1.0}  # every sample trains
            adapters.append(delta_tta.adapt(net, method, "cifar10-c", sync=sync, **used_settings(method, every)))
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(rounds + 2):
            for adapter, found in zip(adapters, times, strict=True):
                dist.barrier()
                before = counted.messages, counted.numbers
                start = time.perf_counter()
                adapter(images)
                if turn >= 2:
                    found.append(time.perf_counter() - start)
        sent = counted.messages - before[0], (counted.numbers - before[1]) * 4 / 1000
        alone, together = (statistics.median(found) for found in times)
        worst = torch.tensor([together / alone])
        dist.all_reduce(worst, dist.ReduceOp.MAX)
        if rank == 0:
            print(f"| {method} | {float(worst):.2f} | {sent[0]} | {sent[1]:.0f} |", flush=True)
    dist.destroy_process_group()
    time.sleep(0.5)  # gloo's threads may end the process with an error if Python ends before them (torch 2.13)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(work, (args.ranks, args.rounds, port), args.ranks)


if __name__ == "__main__":
    main()
