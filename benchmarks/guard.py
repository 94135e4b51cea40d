"""What the guard does: accuracy with and without it, and how often it fired, over healthy and over collapsing streams.

Everything else is as `adapt` has it by default. Methods that normalise with each batch's own statistics stand apart
where the stream is dependent: there the guard gives them moving averages instead.
Prints Markdown. Interrupted and started again with the same --store, it goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
from collections.abc import Iterator
from pathlib import Path

from cells import OURS, results, with_seed
from delta_tta.bench.evaluate import Result
from delta_tta.bench.experiment import FAMILIES, GROUPS, Cell, Place
from delta_tta.recipe import parse
from delta_tta.streams import StreamSpec

METHODS = (
    "bn", "tema", "tent", "pl", "ent-w", "eta", "tent+tema", "tent+dot",
    "tent+delta", "pl+delta", "ent-w+delta", "eta+delta",
)  # fmt: skip
SCENARIOS = (
    StreamSpec("IS+CB"),
    StreamSpec("DS+CB", rho=0.1),
    StreamSpec("DS+CB", rho=0.01),
    StreamSpec("IS+CI", pi=0.05),
    StreamSpec("DS+CI", rho=0.5, pi=0.05),
)
LR = 1e-3
"""Of the preset."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One line of the table: what is done to a method."""

    name: str
    methods: tuple[str, ...]
    scenarios: tuple[StreamSpec, ...] = SCENARIOS
    batch_size: int = 64
    lr: float = LR
    passes: int = 1

    def cells(self, place: Place, corruptions: tuple[str, ...], guard: str) -> Iterator[Cell]:
        settings = tuple({**dict(OURS), "guard": guard, "lr": self.lr}.items())
        for scenario, corruption, method in itertools.product(self.scenarios, corruptions, self.methods):
            yield Cell(place, method, scenario, (corruption,), "each", 5, self.batch_size, settings, passes=self.passes)


SOME = (SCENARIOS[0], SCENARIOS[1], SCENARIOS[2])
TRAINED = ("tent", "tent+tema", "tent+delta", "ent-w+delta")
CASES = (
    Case("as set by the preset", METHODS),
    Case("learning rate × 10", TRAINED, SOME, lr=10 * LR),
    Case("learning rate × 100", TRAINED, SOME, lr=100 * LR),
    Case("20 passes over the stream", TRAINED, SOME[:2], passes=20),
    Case("B = 1", ("bn", "tent", "tent+tema", "tent+delta"), SOME[:2], batch_size=1),
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One cell with and without the guard; accuracies in percent, the mean over seeds."""

    cell: Cell
    source: float
    off: float
    on: float
    firings: int

    @property
    def kind(self) -> str:
        """How the method does by itself: healthy is not worse than the source by more than a point."""
        if parse(self.cell.method).statistics == "bn" and self.cell.stream.scenario.startswith("DS"):
            return UNFIT
        return "healthy" if self.off >= self.source - 1 else "harmed"


UNFIT = "dependent, with each batch's own statistics"


def table(case: str, rows: list[Row]) -> Iterator[str]:
    """Yield a line for each kind."""
    for kind in ("healthy", "harmed", UNFIT):
        some = [row for row in rows if row.kind == kind]
        if not some:
            continue
        mean = {name: sum(getattr(row, name) for row in some) / len(some) for name in ("source", "off", "on")}
        change = max((row.on - row.off for row in some), key=abs)
        worst = min(row.on - row.source for row in some)
        fired = sum(row.firings > 0 for row in some)
        yield (
            f"| {case} | {kind} | {len(some)} | {mean['source']:.1f} | {mean['off']:.1f} | {mean['on']:.1f} "
            f"| {fired} | {change:+.1f} | {worst:+.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corruptions", nargs="+", default=list(FAMILIES), metavar="NAME")
    parser.add_argument("--cases", nargs="+", type=int, default=list(range(len(CASES))), metavar="N")
    parser.add_argument("--images", type=int, help="only so many of the 2,000 images")
    parser.add_argument("--seeds", nargs="+", type=int, default=[2020], help="a cell is their mean (default: 2020)")
    parser.add_argument(
        "--store", type=Path, default=Path("guard.db"), help="results are kept here (default: guard.db)"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cells", action="store_true", help="print every cell, too")
    options = parser.parse_args()
    names = tuple(itertools.chain.from_iterable(GROUPS.get(name, (name,)) for name in options.corruptions))

    place = Place(images=options.images)
    pairs = {
        CASES[i]: list(zip(*(CASES[i].cells(place, names, guard) for guard in ("off", "on")), strict=True))
        for i in options.cases
    }
    # the source answers each image alike, whatever the order and however often it comes
    sources = {off: Cell(place, "source", off.stream, off.corruptions) for each in pairs.values() for off, _ in each}
    cells = [*sources.values(), *itertools.chain.from_iterable(itertools.chain(*pairs.values()))]
    cells = [with_seed(cell, seed) for cell, seed in itertools.product(cells, options.seeds)]
    result = results(cells, options.store, options.workers)

    def runs(cell: Cell) -> list[Result]:
        return [result(with_seed(cell, seed)) for seed in options.seeds]

    def accuracy(cell: Cell) -> float:
        return 100 * statistics.fmean(run.class_mean_accuracy for run in runs(cell))

    print("| setting | cells | how many | Source | off | on | fired in | largest change | worst against Source |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case, each in pairs.items():
        rows = [
            Row(
                on,
                accuracy(sources[off]),
                accuracy(off),
                accuracy(on),
                sum(run.about["guard"][key] for run in runs(on) for key in ("rollbacks", "dependent", "refused")),
            )
            for off, on in each
        ]
        print("\n".join(table(case.name, rows)))
        for row in rows if options.cells else ():
            print(f"  {row.cell}: source {row.source:.1f}, off {row.off:.1f}, on {row.on:.1f}, {row.firings} firings")


if __name__ == "__main__":
    main()
