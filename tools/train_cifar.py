"""Train a CIFAR ResNet as the shipped networks were trained, and write it as safetensors with its card.

    python tools/train_cifar.py data/cifar10 --out src/delta_tta/assets/resnet20-cifar10.safetensors

The folder holds `train.npz` and `test.npz` (images uint8 N×32×32×3, labels int64), as tools/fetch_cifar10.py writes
them. One epoch takes about 80 s on two CPU cores; after each the state is saved beside the output, and the same
command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from delta_tta.models.cifar import CifarResNet

PAD = 4


def read(path: Path) -> tuple[Tensor, Tensor]:
    """Return images, uint8 (N, 32, 32, 3), and labels of one npz file."""
    with np.load(path, allow_pickle=False) as file:
        return torch.from_numpy(file["images"]), torch.from_numpy(file["labels"]).long()


def crop_and_flip(padded: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
    """Return random 32×32 windows, half of them mirrored, of the padded images chosen by index."""
    count, size = len(index), padded.shape[1] - 2 * PAD
    shift = torch.randint(0, 2 * PAD + 1, (2, count, 1), generator=generator)
    flip = torch.rand(count, 1, generator=generator) < 0.5
    line = torch.arange(size)
    rows, columns = shift[0] + line, shift[1] + torch.where(flip, line.flip(0), line)
    return padded[index[:, None, None], rows[:, :, None], columns[:, None, :]]


def accuracy(model: torch.nn.Module, images: Tensor, labels: Tensor, scale: tuple[Tensor, Tensor]) -> float:
    """Return the accuracy in percent, statistics frozen."""
    model.eval()
    with torch.inference_mode():
        right = sum(
            int((model(prepare(x, scale)).argmax(1) == y).sum())
            for x, y in zip(images.split(500), labels.split(500), strict=True)
        )
    return 100 * right / len(labels)


def prepare(images: Tensor, scale: tuple[Tensor, Tensor]) -> Tensor:
    """Return uint8 (B, H, W, 3) as normalised float (B, 3, H, W); the memory stays channels-last."""
    mean, std = scale
    return ((images.float() / 255 - mean) / std).permute(0, 3, 1, 2)


def learning_rate(progress: float, peak: float) -> float:
    """Rise over the first fifth, then fall along a cosine to nothing."""
    if progress < 0.2:
        return peak * (0.05 + 0.95 * progress / 0.2)
    return peak * 0.5 * (1 + math.cos(math.pi * (progress - 0.2) / 0.8))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with train.npz and test.npz")
    parser.add_argument("--out", type=Path, required=True, help="the safetensors file to write")
    parser.add_argument("--depth", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--decay", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    images, labels = read(args.data / "train.npz")
    held_out = read(args.data / "test.npz")
    classes = int(labels.max()) + 1
    pixels = images.reshape(-1, 3).double() / 255
    scale = (pixels.mean(0).float(), pixels.std(0).float())
    padded = F.pad(images.permute(0, 3, 1, 2).float(), (PAD,) * 4, mode="reflect").to(torch.uint8).permute(0, 2, 3, 1)
    padded = padded.contiguous()

    model = CifarResNet(args.depth, classes).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": args.decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=args.lr, momentum=0.9, nesterov=True, fused=True)

    resume = args.out.with_suffix(".resume.pt")
    first = 0
    if resume.exists():
        saved = torch.load(resume, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"]
        print(f"going on after epoch {first} of {resume}", flush=True)

    steps = len(labels) // args.batch
    for epoch in range(first, args.epochs):
        start, total = time.perf_counter(), 0.0
        generator = torch.Generator().manual_seed(args.seed * 1000 + epoch)
        order = torch.randperm(len(labels), generator=generator)[: steps * args.batch].view(steps, args.batch)
        model.train()
        for step, index in enumerate(order):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate((epoch + step / steps) / args.epochs, args.lr)
            x = prepare(crop_and_flip(padded, index, generator), scale)
            loss = F.cross_entropy(model(x), labels[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        score = accuracy(model, *held_out, scale)
        seconds = time.perf_counter() - start
        print(f"epoch {epoch + 1:3d}  loss {total / steps:.4f}  test {score:.2f} %  {seconds:.0f} s", flush=True)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
        torch.save(state, resume.with_suffix(".new"))
        os.replace(resume.with_suffix(".new"), resume)

    score = accuracy(model, *held_out, scale)
    card = {
        "architecture": f"resnet{args.depth}",
        "classes": str(classes),
        "mean": json.dumps([round(float(v), 4) for v in scale[0]]),
        "std": json.dumps([round(float(v), 4) for v in scale[1]]),
        "clean_accuracy": f"{score:.2f}",
        "trained_by": f"tools/train_cifar.py --epochs {args.epochs} --batch {args.batch} --lr {args.lr} "
        f"--decay {args.decay} --seed {args.seed}",
    }
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, args.out, card)
    print(f"{args.out}: {score:.2f} % on {len(held_out[1])} clean test images", flush=True)


if __name__ == "__main__":
    main()
