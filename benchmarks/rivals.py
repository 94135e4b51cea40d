"""What a batch costs with delta-tta and with a plain implementation of the same method, side by side in one run.

    python benchmarks/rivals.py [METHOD ...] [--network NAME] [--batch-size 64] [--rounds 25] [--seed 0]

The plain implementations (plain_rivals.py, plain_norms.py) are written from the papers' formulas, with the same
hyper-parameters. Both learn from the same batches: images of CIFAR-10 with noise, on a network with random weights
whose statistics and classifier fit these images. Before timing, both run on 256 samples in float64: their answers
must agree to 1e-8 of the largest logit, and they must run the network equally often on equally many images. For this
the plain implementations get delta-tta's random numbers (DeYO's patches, NOTE's memory, UnMix-TNS's start) and call
its augmentations (ROID, CMF, RoTTA), so the augmentations themselves are not compared.

One thread. In a round plain eval, delta-tta and plain answer as many batches as have 64 samples, one after the other; a
ratio is the median of the ratios within the rounds. The bar: at most 1.1 times the plain time. Prints Markdown; exits
with 1 if a bar is missed or the answers differ.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

import delta_tta
from baselines import entropy
from delta_tta import data
from delta_tta.augmentations.views import light_views, views
from delta_tta.engine.draws import numbers
from delta_tta.norms.last import last_blocks
from delta_tta.recipe import used_settings
from measure import interleaved, ratio
from networks import NETWORKS
from plain_norms import PlainBalanced, PlainNote, PlainRotta, PlainUnmix
from plain_rivals import PlainCmf, PlainDeyo, PlainRdumb, PlainRoid, PlainSar, PlainT3a

BAR = 1.1
TOLERANCE = 1e-8
"""How far the answers may be apart, relative to the largest logit; what was learnt moves them by 100 times as much."""
INTERVAL = 64
"""Samples from one update of RoTTA and NOTE to the next."""
CHECKED = 4 * INTERVAL
"""Samples on which the answers are compared, at least."""
SIMILARITY = 0.8
"""Of RDumb; with the method's own 0.05 next to no sample would train."""
SETTINGS = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "similarity": SIMILARITY}

Answer = Callable[[Tensor], Tensor]


@dataclass
class Draws:
    """The random numbers that delta-tta draws from its seed 0."""

    first: int = 0
    step: int = 1

    def __post_init__(self) -> None:
        self.numbers = itertools.count(self.first, self.step)

    def __call__(self) -> Generator:
        return numbers(0, next(self.numbers))


def of_samples() -> Iterator[tuple[float, float]]:
    """The two numbers of each sample that NOTE may keep."""
    for update in itertools.count():
        for position in range(INTERVAL):
            generator = numbers(0, update * (INTERVAL + 1) + position)
            first, second = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
            yield first, second


def lightly(draws: Draws) -> Answer:
    return lambda x: light_views(x * 0.5 + 0.5, draws()) * 2 - 1


def strongly(draws: Draws) -> Answer:
    return lambda x: views(x * 0.5 + 0.5, draws(), together=True) * 2 - 1


def fixed(net: nn.Module) -> frozenset[str]:
    """The norm layers that SAR and DeYO do not train."""
    return last_blocks([name for name, m in net.named_modules() if isinstance(m, nn.BatchNorm2d)])


def classifier(net: nn.Module) -> nn.Linear:
    return [m for m in net.modules() if isinstance(m, nn.Linear)][-1]


def unmix(net: nn.Module, exact: bool) -> Answer:
    """It starts from delta-tta's components, which are drawn at random."""
    start = delta_tta.adapt(copy.deepcopy(net), "unmix-tns").state_dict()["statistics"].values()
    return PlainUnmix(net, ((one["mean"], one["std"] ** 2) for one in start))


def note(net: nn.Module, exact: bool) -> Answer:
    draws = of_samples()
    return PlainNote(net, (lambda: next(draws)) if exact else None)


PLAIN: dict[str, Callable[[nn.Module, bool], Answer]] = {
    "sar": lambda net, exact: PlainSar(net, fixed(net)),
    "deyo": lambda net, exact: PlainDeyo(net, fixed(net), Draws()),
    "rdumb": lambda net, exact: PlainRdumb(net, SIMILARITY),
    "roid": lambda net, exact: PlainRoid(net, lightly(Draws())),
    "cmf": lambda net, exact: PlainCmf(net, lightly(Draws())),
    "rotta": lambda net, exact: PlainRotta(net, copy.deepcopy(net), strongly(Draws(INTERVAL, INTERVAL + 1))),
    "note": note,
    "unmix-tns": unmix,
    "bbn": lambda net, exact: PlainBalanced(net, classifier(net).out_features),
    "t3a": lambda net, exact: PlainT3a(net, classifier(net)),
}
"""Method → its plain implementation on a network; `exact`: with the random numbers of delta-tta, if that takes time."""


def noisy(count: int, size: int, pixels: int) -> list[Tensor]:
    """Return batches of images with noise, as the network takes them."""
    images = data.Corrupted(data.demo(), "gaussian_noise", severity=5)
    order = torch.randperm(len(images)).tolist() * math.ceil(count * size / len(images))
    found = itertools.islice(images.batches(order, size), count)
    return [F.interpolate(x / 255, (pixels, pixels), mode="bilinear") * 2 - 1 for x, _ in found]


@torch.no_grad()
def network(build: Callable[[], nn.Module], batches: list[Tensor]) -> nn.Module:
    """Return a network whose predictions on these batches are diverse, and mostly sure enough to train on."""
    net = build().train()
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.momentum = None  # average over all batches
    for x in batches:
        net(x)
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.momentum = 0.1
    net.eval()
    head, x = classifier(net), torch.cat(batches)
    head.bias -= net(x).mean(0)
    while entropy(net(x)).mean() > 0.3 * math.log(head.out_features):
        head.weight *= 1.2
        head.bias *= 1.2
    return net


def counted(net: nn.Module) -> tuple[nn.Module, list[tuple[int, bool]]]:
    """Return a copy, and a list that takes down each run of it: the number of images, and whether it can train."""
    runs: list[tuple[int, bool]] = []
    net = copy.deepcopy(net)
    classifier(net).register_forward_hook(lambda layer, x, y: runs.append((len(y), y.requires_grad)))
    return net, runs


def adapted(net: nn.Module, method: str) -> delta_tta.Adapter:
    return delta_tta.adapt(net, method, **used_settings(method, SETTINGS))


def compare(method: str, net: nn.Module, batches: list[Tensor]) -> float:
    """Return how far the answers are apart, relative to the largest logit; the worst of some batches in float64."""
    net, worst = copy.deepcopy(net).double(), 0.0
    (first, of_ours), (second, of_plain) = counted(net), counted(net)
    ours, plain, fresh = adapted(first, method), PLAIN[method](second, True), adapted(net, method)
    of_ours.clear()  # adapt() may try the network
    of_plain.clear()
    for x in itertools.islice(itertools.cycle(batches), math.ceil(CHECKED / len(batches[0]))):
        answer, expected = ours(x.double()), plain(x.double())
        worst = max(worst, apart(answer, expected))
        assert ours.signals.used != 0, f"{method}: no sample trains, which would be no work to time"
    assert sorted(of_ours) == sorted(of_plain), f"{method}: runs of the network {of_ours} and {of_plain}"
    learnt = apart(answer, fresh.predict(x.double()))
    assert learnt > 100 * TOLERANCE, f"{method}: what was learnt moves the answers by {learnt:.0e} only"
    return worst


def apart(answer: Tensor, expected: Tensor) -> float:
    return float((answer - expected).abs().max() / expected.abs().max())


def timed(method: str, net: nn.Module, batches: list[Tensor], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of plain eval, delta-tta and the plain implementation."""
    ours, plain = adapted(copy.deepcopy(net), method), PLAIN[method](copy.deepcopy(net), False)

    def plain_eval(x: Tensor) -> Tensor:
        with torch.no_grad():
            return net(x)

    def round_of(call: Answer) -> Callable[[], None]:
        stream = itertools.cycle(batches)

        def answer() -> None:
            for x in itertools.islice(stream, math.ceil(INTERVAL / len(batches[0]))):
                call(x)

        return answer

    calls = {"eval": plain_eval, "ours": ours, "plain": plain}
    times = interleaved({name: round_of(call) for name, call in calls.items()}, 0, rounds=(rounds, rounds))
    for name, call in calls.items():
        assert bool(call(batches[0]).isfinite().all()), f"{method}: answers of {name} are not finite at the end"
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=f"of {', '.join(PLAIN)} (default: all)")
    parser.add_argument("--network", choices=NETWORKS, default="CIFAR ResNet-20", help="(default: CIFAR ResNet-20)")
    parser.add_argument("--batch-size", type=int, default=64, metavar="B", help="(default: 64)")
    parser.add_argument("--rounds", type=int, default=25, help="after three that warm up (default: 25)")
    parser.add_argument("--seed", type=int, default=0, help="of the network's weights (default: 0)")
    args = parser.parse_args()
    unknown = [method for method in args.methods if method not in PLAIN]
    if unknown:
        parser.error(f"Expected methods among {', '.join(PLAIN)}, but got {', '.join(unknown)}.")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    build, pixels = NETWORKS[args.network]
    batches = noisy(4, args.batch_size, pixels)
    net = network(build, batches)
    print(
        f"{args.network} {pixels}px, B = {args.batch_size}, {args.rounds} rounds, torch {torch.__version__}, ", end=""
    )
    print(f"one thread, {platform.machine()}\n")
    print(
        "| method | delta-tta / plain eval | plain / plain eval | delta-tta / plain | bar | | difference of answers |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    fine = []
    for method in args.methods or PLAIN:
        difference = compare(method, net, batches)
        times = timed(method, net, batches, args.rounds)
        found = ratio(times, "ours", "plain")
        own, other = ratio(times, "ours", "eval"), ratio(times, "plain", "eval")
        fine.append(found <= BAR and difference <= TOLERANCE)
        verdict = "met" if fine[-1] else "missed" if difference <= TOLERANCE else "other answers"
        print(
            f"| {method} | {own:.2f} | {other:.2f} | {found:.2f} | ≤ {BAR:g} | {verdict} | {difference:.0e} |",
            flush=True,
        )
    print(f"\n{sum(fine)} of {len(fine)} bars met.")
    sys.exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
