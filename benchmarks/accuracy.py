"""How well `estimate=True` tells the accuracy of the answers, and whether the source would answer better.

    python benchmarks/accuracy.py [--networks NAME ...] [--corruptions NAME ...] [--samples 1024] [--split test]

Streams in batches of 64, of each corruption and of clean images; the constants were chosen on the validation split.
Prints a row for each stream: the accuracy and the estimate at its end, in percent. Then the mean absolute errors, in
points, beside those of AETTA (Lee et al. 2024): the share of predictions that change where 10 random parts of the
features are left out, divided by the cube of the relative entropy of the mean prediction. Last the alarms, the worth of
choosing between the answers and the source's by the estimates, and the cost in processor time.
Ctrl-C ends it with the tables of what was run.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import delta_tta
from cells import batch_norm_networks, cell_of, cell_options
from delta_tta.adapt import RECOMMENDED
from delta_tta.corruptions.constants import TYPES, VALIDATION
from delta_tta.experiments.cell import CLEAN, Cell
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.runner import default_cache
from delta_tta.recipe import used_settings
from delta_tta.rules.accuracy import RAREST
from delta_tta.streams import StreamSpec

METHODS = ("source", "bn", "tent+delta", RECOMMENDED)
STREAMS = (StreamSpec("IS+CB"), StreamSpec("DS+CB", rho=0.1), StreamSpec("DS+CI", rho=0.5, pi=0.05))
LOSS = 3.0
"""Points that an alarm should see within WITHIN samples."""
WITHIN = 1000
PARTS, WEIGHT, KEPT = 10, 3, 0.6


class Aetta:
    """AETTA's estimate of one stream; features are left out with probability 0.4, with 100 classes 0.3."""

    def __init__(self, model: nn.Module, classes: int) -> None:
        self._last = [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]
        self._rate = 0.4 if classes <= 10 else 0.3
        self._generator, self._error, self._found = torch.Generator().manual_seed(0), None, []
        self._features: list[Tensor] = []
        self._hook = self._last.register_forward_pre_hook(lambda _, given: self._features.append(given[0].detach()))

    @torch.no_grad()
    def look(self, adapter: delta_tta.Adapter, x: Tensor) -> None:
        """Estimate the error of a batch."""
        self._features.clear()
        adapter.predict(x)
        features = next(one for one in self._features if len(one) == len(x))
        plain = self._last(features).argmax(1)
        total, changed = 0.0, 0.0
        for _ in range(PARTS):
            keep = torch.rand(features.shape, generator=self._generator) >= self._rate
            p = self._last(features * keep / (1 - self._rate)).softmax(1)
            total, changed = total + p.mean(0) / PARTS, changed + float((p.argmax(1) != plain).float().mean()) / PARTS
        entropy = float(-(total * total.clamp_min(1e-12).log()).sum()) / math.log(len(total))
        error = min(changed / entropy**WEIGHT, 1 - 1 / len(total))
        self._error = error if self._error is None else KEPT * self._error + (1 - KEPT) * error
        self._found.append(1 - self._error)

    def close(self) -> float:
        """Return the mean estimate over the stream."""
        self._hook.remove()
        return statistics.fmean(self._found)


class Clock:
    """Processor time of the batches, and of the estimates in them."""

    def __init__(self) -> None:
        self.steps = self.passes = self.compared = self.others = 0.0
        self.batches = self.looks = 0

    def watch(self, estimator: Any) -> None:
        """Measure each call of `look`."""
        look: Callable[..., None] = estimator.look

        def timed(*args: Any, **kwargs: Any) -> None:
            before, started = estimator._known, time.process_time()
            look(*args, **kwargs)
            taken = time.process_time() - started
            if estimator._known is before:
                self.others += taken
            else:
                self.compared, self.looks = self.compared + taken, self.looks + 1

        estimator.look = timed

    def shares(self) -> tuple[float, float]:
        """Return what estimates add to a step, in percent: here, and where one batch in RAREST is compared."""
        rest = self.batches - self.looks
        step = (self.steps - self.compared - self.others) / self.batches
        of_look, other = self.compared / max(self.looks, 1), self.others / max(rest, 1)
        here = (self.compared + self.others) / self.batches
        return 100 * here / step, 100 * (of_look / RAREST + other) / step


@dataclass(frozen=True)
class Found:
    """One stream; accuracies in percent."""

    network: str
    method: str
    stream: StreamSpec
    right: float
    estimate: float
    low: float
    high: float
    of_source: float | None
    aetta: float
    alarm: int | None  # samples until the first

    @property
    def error(self) -> float:
        """In points."""
        return abs(self.estimate - self.right)


def run(lab: Lab, cell: Cell, network: str, clock: Clock) -> Found:
    """Run one cell."""
    named, alarm, right, samples = lab.model(cell.place), None, 0, 0
    adapter = delta_tta.adapt(
        named.model, cell.method, cell.place.preset, **used_settings(cell.method, {"estimate": True})
    )
    images = lab.images(cell.place, cell.corruptions[0], cell.severity)
    clock.watch(adapter._estimator)
    aetta = None
    try:
        for x, y in images.batches(list(lab.stream(cell)), cell.batch_size):
            given, started = named.normalisation(x), time.process_time()
            logits = adapter(given)
            clock.steps, clock.batches = clock.steps + time.process_time() - started, clock.batches + 1
            right, samples = right + int((logits.argmax(1) == y).sum()), samples + len(y)
            if alarm is None and adapter.signals.worse_than_source:
                alarm = samples
            aetta = aetta or Aetta(named.model, logits.shape[1])
            aetta.look(adapter, given)
        found = adapter.signals.accuracy
        assert found is not None
        assert aetta is not None
        return Found(
            network, cell.method, cell.stream, 100 * right / samples, 100 * found.estimate, 100 * found.low,
            100 * found.high, None if found.source is None else 100 * found.source, aetta.close(), alarm,
        )  # fmt: skip
    finally:
        adapter.unload()


def errors(found: Sequence[Found]) -> str:
    """Return a row of mean errors."""
    if not found:
        return "| | |"
    inside = 100 * statistics.fmean(one.low <= one.right <= one.high for one in found)
    aetta = statistics.fmean(abs(100 * one.aetta - one.right) for one in found)
    return (
        f"| {statistics.fmean(one.error for one in found):.1f} | {max(one.error for one in found):.1f} | {inside:.0f} "
        f"| {aetta:.1f} | {len(found)} |"
    )


def main() -> None:
    """Run the command."""
    parser = cell_options(__doc__, samples=1024)
    parser.add_argument("--split", choices=["validation", "test"], default="validation")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lab, every, clocks = Lab(default_cache()), [], {method: Clock() for method in METHODS}
    found: list[tuple[Found, float]] = []  # each with the source's accuracy on the same stream
    kinds = (*(VALIDATION if given.split == "validation" else TYPES), CLEAN)
    print("| | source | its estimate | accuracy | estimate | alarm |\n|---|---|---|---|---|---|", flush=True)
    cells = itertools.product(
        [kind for kind in kinds if not given.corruptions or kind in given.corruptions],
        batch_norm_networks(given),
        STREAMS,
    )
    try:
        for corruption, network, stream in cells:
            source = None
            for method in METHODS:
                one = run(
                    lab, cell_of(network, corruption, stream, given.samples, method), network.name, clocks[method]
                )
                source = one.right if source is None else source
                every.append(one)
                found.append((one, source))
                said = "" if one.of_source is None else f"{one.of_source:.1f}"
                where = f"{network.name}, {corruption.replace('_', ' ')}, {stream.scenario}, {method}"
                alarm = "" if one.alarm is None else f"after {one.alarm}"
                print(
                    f"| {where} | {source:.1f} | {said} | {one.right:.1f} | {one.estimate:.1f} | {alarm} |", flush=True
                )
    except KeyboardInterrupt:
        print("\nInterrupted; of what was run:")
    print("\n| | mean error | worst | in the interval, % | AETTA | streams |\n|---|---|---|---|---|---|")
    print(f"| all {errors(every)}")
    for label, chosen in (("shuffled", False), ("dependent", True)):
        print(f"| {label} {errors([one for one in every if one.stream.dependent == chosen])}")
    for name in dict.fromkeys(one.network for one in every):
        print(f"| {name} {errors([one for one in every if one.network == name])}")
    for method in METHODS:
        print(f"| {method} {errors([one for one in every if one.method == method])}")
    alarms(found)
    print(f"\n| cost, % of a step | these streams | one batch in {RAREST} |\n|---|---|---|")
    for method, clock in clocks.items():
        here, later = clock.shares()
        print(f"| {method} | {here:.1f} | {later:.1f} |")


def alarms(found: Sequence[tuple[Found, float]]) -> None:
    """Print how often there was an alarm, and what choosing by the estimates is worth."""
    adapted = [(one, one.right - source) for one, source in found if one.of_source is not None]
    fine = [one for one, gain in adapted if gain >= 0]
    little = [one for one, gain in adapted if -LOSS < gain < 0]
    lost = [one for one, gain in adapted if gain <= -LOSS]
    seen = [one.alarm for one in lost if one.alarm is not None and one.alarm <= WITHIN]
    print("\n| the adapted answers are | streams | alarms |\n|---|---|---|")
    print(f"| as good or better | {len(fine)} | {sum(one.alarm is not None for one in fine)} |")
    print(f"| worse by less than {LOSS:g} points | {len(little)} | {sum(one.alarm is not None for one in little)} |")
    print(f"| worse by more | {len(lost)} | {len(seen)} within {WITHIN} samples |")
    if seen:
        print(f"\nAlarms come after {statistics.fmean(seen):.0f} samples on average, at most {max(seen)}.")
    for method in METHODS[1:]:
        own = [(one, source) for one, source in found if one.method == method]
        picked = [source if (one.of_source or 0) > one.estimate else one.right for one, source in own]
        print(
            f"{method}: {statistics.fmean(one.right for one, _ in own):.1f} % right, the source "
            f"{statistics.fmean(source for _, source in own):.1f} %, the one with the higher estimate "
            f"{statistics.fmean(picked):.1f} %, the better {statistics.fmean(max(o.right, s) for o, s in own):.1f} %."
        )


if __name__ == "__main__":
    main()
