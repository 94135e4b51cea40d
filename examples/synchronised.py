"""One model on several devices: each process answers its share of a stream, all of them learn from the whole.

torchrun --nproc-per-node 2 examples/synchronised.py

On CPUs it talks by gloo, on GPUs by NCCL. On the embedded images, under motion blur, in dependent order (DS+CB), each
process takes every other batch; without `sync=True` each would adapt to its own half.
"""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist

import delta_tta
from delta_tta import data, models, streams
from delta_tta.metrics import Metrics

BATCH = 32


def main() -> None:
    """Run one rank."""
    gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)

    named = models.load("resnet20-cifar10")
    images = data.Subset(data.demo(), 400)
    drifted = data.in_memory(data.Corrupted(images, "motion_blur", 5))
    order = streams.stream(drifted.labels, "DS+CB", rho=0.1).indices

    model = delta_tta.adapt(named.model.to(device), "tent+delta", "cifar10-c", sync=True)
    metrics = Metrics(10)
    # Every rank calls the model equally often; where a share runs out, it is empty.
    for start in range(0, len(order), BATCH * ranks):
        own = order[start + rank * BATCH : start + (rank + 1) * BATCH]
        x = torch.from_numpy(drifted.take(own)).permute(0, 3, 1, 2).contiguous()
        logits = model(named.normalisation(x.to(device)))
        metrics.update(logits.cpu(), torch.from_numpy(drifted.labels[own]))

    counts = torch.stack([metrics.right, metrics.seen]).to(device)
    dist.all_reduce(counts)
    if rank == 0:
        right, seen = counts.cpu()
        print(f"{ranks} ranks, {int(seen.sum())} images, accuracy {100 * right.sum() / seen.sum():.1f} %")
    dist.destroy_process_group()
    time.sleep(0.5)  # gloo's threads may end the process with an error if Python ends before them (torch 2.13)


if __name__ == "__main__":
    main()
