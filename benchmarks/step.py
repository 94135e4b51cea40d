"""How fast one step is: ours against eval, plain TENT and the plain formula, side by side in one run.

Ratios only: the same machine, the same moment. Prints Markdown with the bars beside the measured values.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import itertools
import math
import platform
import sys
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import delta_tta
from baselines import FormulaNorm, PlainDelta, PlainTent
from delta_tta import data, models
from delta_tta.adapt import RECOMMENDED
from delta_tta.evidence import LONGEST
from delta_tta.guard_limits import Guard
from delta_tta.norms.statistics import Observation
from delta_tta.norms.tbr import Renormalise
from delta_tta.postprocess.sticky import Sticky
from delta_tta.prediction import Prediction
from delta_tta.reweighting import Dot
from delta_tta.settings import Settings
from delta_tta.streams import stream
from measure import bytes_saved, interleaved, ratio
from networks import NETWORKS

Row = tuple[str, float, float, float | None]
"""What, measured, bar, stretch."""
WARM = 8
"""Steps that are not counted."""


def adapted(net: nn.Module, method: str = "tent+delta", **settings: object) -> delta_tta.Adapter:
    return delta_tta.adapt(net, method, "cifar100-c", **{"update": "every", **settings})


def steps(name: str, size: int, seconds: float) -> Iterator[Row]:
    """One network at one batch size."""
    build, pixels = NETWORKS[name]
    torch.manual_seed(0)
    net, x = build(), torch.randn(size, 3, pixels, pixels)
    classes = [m for m in net.modules() if isinstance(m, nn.Linear)][-1].out_features
    last = x.to(memory_format=torch.channels_last)
    evaluated, tent, formula = (
        copy.deepcopy(net).eval(),
        PlainTent(copy.deepcopy(net)),
        PlainDelta(copy.deepcopy(net), classes),
    )
    ours, frozen = adapted(copy.deepcopy(net)), adapted(copy.deepcopy(net))
    wide = adapted(copy.deepcopy(net).to(memory_format=torch.channels_last))
    background = adapted(copy.deepcopy(net), background=True)
    tema, anchored = adapted(copy.deepcopy(net), "tema"), adapted(copy.deepcopy(net), "anchored+sticky")
    recommended, comparing = (adapted(copy.deepcopy(net), RECOMMENDED) for _ in range(2))
    frozen(x)

    def run(adapter: delta_tta.Adapter, compare: bool) -> Tensor:
        """Run a batch at which the candidates are compared, or one later on at which they are not."""
        shares, mirror = adapter._updater.shares, adapter._updater.postprocess
        assert shares is not None
        shares.memory = dataclasses.replace(shares.memory, due=0 if compare else shares.memory.batches + 1)
        if adapter._estimator is not None and not compare:
            adapter._estimator._due = sys.maxsize  # at a comparison it has the source's answers for nothing
        if mirror is not None and mirror.memory:
            mirror.memory["left"] = torch.tensor(0.0 if compare else 1.0)
        return adapter(x)

    for adapter in (anchored, recommended, comparing):
        adapter(x)

    def plain_eval() -> Tensor:
        with torch.no_grad():
            return evaluated(x)

    times = interleaved(
        {
            "eval": plain_eval,
            "tent": lambda: tent(x),
            "formula": lambda: formula(x),
            "ours": lambda: ours(x),
            "anchored": lambda: run(anchored, compare=False),
            "recommended": lambda: run(recommended, compare=False),
            "comparing": lambda: run(comparing, compare=True),
            "channels last": lambda: wide(last),
            "frozen": lambda: frozen.predict(x),
            "background": lambda: background(x),
            "tema": lambda: tema(x),
        },
        seconds,
        after=background.wait,
    )
    small = size < 64
    yield "step / TENT", ratio(times, "ours", "tent"), 1.20 if small else 1.10, 1.10 if small else 0.85
    yield "(step / TENT, channels_last)", ratio(times, "channels last", "tent"), float("inf"), None
    between, at = (ratio(times, name, "ours") for name in ("recommended", "comparing"))
    amortised = between + (at - between) / LONGEST
    yield "recommended / delta step, with one comparison in 64", amortised, float("inf") if small else 1.15, None
    extra = (ratio(times, "comparing", "eval") - ratio(times, "recommended", "eval")) / LONGEST
    alone = ratio(times, "anchored", "eval") + extra
    yield "anchored+sticky / eval, with one comparison in 64", alone, float("inf") if small else 1.5, None
    yield "(recommended / eval, between comparisons)", ratio(times, "recommended", "eval"), float("inf"), None
    yield "(recommended / eval, at a comparison)", ratio(times, "comparing", "eval"), float("inf"), None
    yield "step / plain formula", ratio(times, "ours", "formula"), 0.55 if pixels <= 32 else 0.75, None
    yield "frozen / eval", ratio(times, "frozen", "eval"), 1.10, 1.02
    yield "background latency / eval", ratio(times, "background", "eval"), 1.25, 1.05
    saved = bytes_saved(lambda: ours._updater.observe(x), x, ours.model)
    yield "bytes saved for backward / TENT", saved / bytes_saved(lambda: tent.model(x), x, tent.model), 1.01, 0.5
    yield "(step / eval)", ratio(times, "ours", "eval"), float("inf"), None
    yield "(TENT / eval)", ratio(times, "tent", "eval"), float("inf"), None
    yield "(tema, statistics only / eval)", ratio(times, "tema", "eval"), float("inf"), None


def dot_share(size: int) -> Row:
    """DOT alone against the whole step it is part of, at 1000 classes."""
    build, pixels = NETWORKS["ResNet-18"]
    x, logits = torch.randn(size, 3, pixels, pixels), torch.randn(size, 1000)
    ours, dot = adapted(build()), Dot(Settings())
    state = dot.next_state(Prediction(logits), {}, None)
    prediction = Prediction(logits)
    _ = prediction.p, prediction.label  # the objective needs them anyway

    def reweigh() -> None:
        dot.weights(prediction, state)
        dot.next_state(prediction, state, None)

    times = interleaved({"dot": reweigh, "step": lambda: ours(x)}, 5)
    return "DOT / step, K = 1000, in %", 100 * ratio(times, "dot", "step"), 0.5, None


def filter_share(size: int) -> Row:
    """The filter alone against a step of tent+delta, at 1000 classes on a stream with order."""
    build, pixels = NETWORKS["ResNet-18"]
    x, ours, sticky = torch.randn(size, 3, pixels, pixels), adapted(build()), Sticky(Settings())
    logits = torch.randn(size, 1000)
    logits[:, 7] += 6  # one class in view: the filter finds order

    def answer() -> None:
        sticky.commit(sticky.answer(logits)[1])

    times = interleaved({"filter": answer, "step": lambda: ours(x)}, 5)
    return "filter / step, K = 1000, in %", 100 * ratio(times, "filter", "step"), 1.0, None


def layer_errors() -> Iterator[Row]:
    """The largest error of one TBR layer against the formula: value and all gradients, relative to their size."""
    for dtype, bar in ((torch.float64, 1e-13), (torch.float32, 5e-6)):
        worst = 0.0
        for seed in range(20):
            torch.manual_seed(seed)
            layer, other = nn.BatchNorm2d(32).to(dtype), torch.randn(16, 32, 8, 8, dtype=dtype) * 1.5 + 0.3
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            formula = FormulaNorm(layer)
            formula(other)
            assert formula.mean is not None
            assert formula.std is not None
            mean, std = formula.mean.flatten(), formula.std.flatten()
            v = torch.randn(16, 32, 8, 8, dtype=dtype, requires_grad=True)
            g, wanted = torch.randn_like(v), (v, layer.weight, layer.bias)
            mine = Renormalise.apply(v, layer.weight, layer.bias, mean, std, Observation(v, layer.eps))
            theirs = formula(v)
            pairs = [(mine.detach(), theirs.detach())]
            pairs += zip(torch.autograd.grad(mine, wanted, g), torch.autograd.grad(theirs, wanted, g), strict=True)
            worst = max(worst, *(float((a - b).abs().max() / b.abs().max()) for a, b in pairs))
        yield f"TBR layer error, {str(dtype).removeprefix('torch.')}", worst, bar, None


def slow_update(seconds: float) -> Row:
    """B = 1 with an update every 64 samples, per sample, against eval."""
    build, pixels = NETWORKS["CIFAR ResNet-20"]
    net, samples = build(), torch.randn(64, 1, 3, pixels, pixels)
    evaluated, slow = copy.deepcopy(net).eval(), adapted(net, update="slow", length=64)

    def plain_eval() -> None:
        with torch.no_grad():
            for x in samples:
                evaluated(x)

    def answer() -> None:
        for x in samples:
            slow(x)

    times = interleaved({"eval": plain_eval, "slow": answer}, seconds)
    return "(slow update, B = 1, L = 64 / eval)", ratio(times, "slow", "eval"), float("inf"), None


def guard_share(method: str, size: int) -> Row:
    """What the guard costs on average over a healthy stream: the embedded images with noise, shuffled.

    It costs much at few steps and little at the others, so what counts is the whole time; to meet the same machine, the
    two take turns at every step.
    """
    images, named = data.Corrupted(data.demo(), "gaussian_noise", severity=5), models.load("resnet20-cifar10")
    order = stream(images.labels, "IS+CB", seed=2020)
    batches = itertools.cycle([named.normalisation(x) for x, _ in images.batches(list(order), size)])
    adapters = [
        delta_tta.adapt(copy.deepcopy(named.model), method, "cifar10-c", update="every", guard=guard)
        for guard in ("off", "on")
    ]
    spent, guard = [0.0, 0.0], Guard()
    turns = 2 * (guard.every + 1) * math.ceil(guard.samples / size)
    for turn, x in enumerate(itertools.islice(batches, WARM + turns)):
        for i in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            adapters[i](x)
            spent[i] += time.perf_counter() - start if turn >= WARM else 0
    fired = adapters[1].signals.rollbacks
    assert fired == 0, f"the guard fired {fired} times on a healthy stream"
    return f"guard on / off, {method}", spent[1] / spent[0], 1.02, None


def show(setting: str, row: Row) -> bool | None:
    """Print a row; return whether its bar is met, if it has one."""
    what, value, bar, stretch = row
    number = f"{value:.1e}" if value < 1e-3 else f"{value:.3f}"
    if bar == float("inf"):
        verdict, bar_text, stretch_text = "", "", ""
    else:
        bar_text = f"≤ {bar:g}"
        stretch_text = "" if stretch is None else f"≤ {stretch:g}"
        verdict = "missed" if value > bar else "met" if stretch is None or value > stretch else "stretch met"
    print(f"| {setting} | {what} | {number} | {bar_text} | {stretch_text} | {verdict} |", flush=True)
    return None if bar == float("inf") else value <= bar


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), metavar="NAME")
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[8, 16, 64], metavar="B")
    parser.add_argument("--seconds", type=float, default=20, help="per network and batch size (default: 20)")
    options = parser.parse_args()

    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}\n")
    print("| setting | what | measured | bar | stretch | |\n|---|---|---|---|---|---|")
    fine = [show("one layer", row) for row in layer_errors()]
    for name in options.networks:
        for size in options.batch_sizes:
            setting = f"{name} {NETWORKS[name][1]}px, B = {size}"
            fine += [show(setting, row) for row in steps(name, size, options.seconds)]
    fine.append(show("ResNet-18 64px, B = 64", dot_share(64)))
    fine.append(show("ResNet-18 64px, B = 64", filter_share(64)))
    for size in options.batch_sizes:
        fine.append(show(f"CIFAR ResNet-20 32px, B = {size}", guard_share("tent+delta", size)))
    show("CIFAR ResNet-20 32px", slow_update(options.seconds / 2))
    print(f"\n{sum(met for met in fine if met is not None)} of {len(fine) - fine.count(None)} bars met.")


if __name__ == "__main__":
    main()
