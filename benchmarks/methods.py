"""What every method costs: time and memory of a batch relative to plain eval, side by side in one run.

python benchmarks/methods.py [--rounds 5] [--markdown FILE]

ResNet-20 on 32×32 images, B = 64, two threads, every sample trains. Beside CoTTA and MEMO stand the straightforward
ways, written plainly here: every image augmented by itself, always all 32 copies; MEMO's copies run one at a time. The
bars: CoTTA at least 2 times and MEMO at least 3 times cheaper per sample than those. Prints Markdown; exits with 1 if a
bar is missed.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import delta_tta
from delta_tta.augmentations.augmix import augmix
from delta_tta.augmentations.views import views
from delta_tta.models.cifar import CifarResNet
from delta_tta.recipe import used_settings

B = 64
METHODS = (
    "source", "bn", "tema", "lame", "tent", "tent+tbr", "tent+delta", "pl+delta", "ent-w+delta", "eta", "eta+delta",
    "eata", "ent-w+tbr+div-w", "ent-w+tbr+la", "ent-w+tbr+kl-div", "ent-w+tbr+sample-drop", "tent+delta+lame", "tta",
    "cotta", "memo",
)  # fmt: skip
BARS = {"cotta": 2.0, "memo": 3.0}
SCALE = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


def plain_cotta(net: nn.Module) -> Callable[[Tensor], Tensor]:
    """Three deep copies, and 32 augmented copies of every image whatever the confidence, image by image."""
    student, teacher, anchor = copy.deepcopy(net).train(), copy.deepcopy(net).train(), copy.deepcopy(net).train()
    optimizer = torch.optim.Adam(student.parameters(), 1e-3)
    source = {name: p.detach().clone() for name, p in student.named_parameters()}
    generator = torch.Generator().manual_seed(0)

    def answer(x: Tensor) -> Tensor:
        with torch.no_grad():
            anchor(x).softmax(1).max(1).values.mean()
            teacher(x)
            total = torch.zeros(1)
            for _ in range(32):
                one_by_one = [views(image[None] * 0.5 + 0.5, generator) for image in x]
                total = total + teacher((torch.cat(one_by_one) - 0.5) / 0.5)
            target = total / 32
        loss = -(target.softmax(1) * student(x).log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, (name, fast) in zip(teacher.parameters(), student.named_parameters(), strict=True):
                slow.mul_(0.999).add_(0.001 * fast)
                mask = (torch.rand(fast.shape) < 0.01).float()
                fast.copy_(source[name] * mask + fast * (1 - mask))
        return target

    return answer


def plain_memo(net: nn.Module) -> Callable[[Tensor], Tensor]:
    """A deep copy for every image; its 32 copies made and run one by one."""
    generator = torch.Generator().manual_seed(0)

    def answer(x: Tensor) -> Tensor:
        answers = []
        for image in x:
            model = copy.deepcopy(net).eval()
            optimizer = torch.optim.SGD(model.parameters(), 5e-3)
            copies = [(augmix(image[None] * 0.5 + 0.5, 1, generator)[0] - 0.5) / 0.5 for _ in range(32)]
            mean = torch.stack([model(one).softmax(1)[0] for one in copies]).mean(0)
            (-(mean * mean.log()).sum()).backward()
            optimizer.step()
            with torch.no_grad():
                answers.append(model(image[None]))
        return torch.cat(answers)

    return answer


def everyone(method: str) -> dict[str, float]:
    """Let every sample train: a method that trains on few is cheaper, but that depends on the stream."""
    return {"threshold": 1e-3 if method.startswith("pl") else 2.0, "similarity": 1.0}


def measured(call: Callable[[Tensor], Tensor], x: Tensor) -> float:
    start = time.perf_counter()
    call(x)
    return time.perf_counter() - start


def kept_bytes(adapter: delta_tta.Adapter) -> int:
    """What the method keeps beside the model: its state, and the source values it can go back to."""

    def size(value: object) -> int:
        if isinstance(value, Tensor):
            return value.numel() * value.element_size()
        return sum(map(size, value.values())) if isinstance(value, dict) else 0

    return size(adapter.state_dict()) + size(adapter._updater.adapted.source)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", type=Path, help="write the table to this file, too")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    net = CifarResNet(20, 10).eval()
    net.fc.weight.data *= 0.1  # unsure, so that CoTTA makes its views
    batches = [torch.randn(B, 3, 32, 32) * 0.5 for _ in range(4)]

    def plain_eval(x: Tensor) -> Tensor:
        with torch.inference_mode():
            return net(x)

    adapters = {
        m: delta_tta.adapt(
            copy.deepcopy(net), m, "cifar10-c", source=batches[:2], **used_settings(m, {**SCALE, **everyone(m)})
        )
        for m in METHODS
    }
    calls: dict[str, Callable[[Tensor], Tensor]] = {"plain eval": plain_eval, **adapters}
    slow = {"cotta": plain_cotta(net), "memo": plain_memo(net)}
    few = {"memo", *(f"plain {m}" for m in slow)}
    calls |= {f"plain {name}": call for name, call in slow.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(args.rounds + 1):
        for name, call in calls.items():
            x = batches[turn % len(batches)]
            part = x[:8] if "memo" in name else x  # image by image: an eighth of the batch tells
            if turn > 2 and name in few:
                continue
            seconds = measured(call, part) * len(x) / len(part)
            if turn:  # the first warms up
                times[name].append(seconds)
    middle = {name: statistics.median(values) for name, values in times.items()}
    base = middle["plain eval"]
    lines = ["| method | time / plain eval | kept beside the model, KB |", "|---|---|---|"]
    lines += [f"| {m} | {middle[m] / base:.2f} | {kept_bytes(adapters[m]) / 1000:.0f} |" for m in METHODS]
    missed = False
    for name, bar in BARS.items():
        ratio = middle[f"plain {name}"] / middle[name]
        missed |= ratio < bar
        lines.append(
            f"| {name}, straightforward | {middle[f'plain {name}'] / base:.1f} = {ratio:.2f} × ours (bar {bar:.0f}) | |"
        )
    table = "\n".join(lines)
    print(table)
    if args.markdown:
        args.markdown.write_text(table + "\n", encoding="utf-8")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
