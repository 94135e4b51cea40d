"""DELTA as the paper has it, against what we put in its place: paced averages, balanced statistics, and both.

Prints, in Markdown, class-mean accuracies and the paired differences from the paper's method, with their standard
errors over corruptions and seeds. Nothing here was used to choose a rule or a constant, but for the guard's limits:
that was done on the four validation corruptions. Interrupted and started again with the same --store, it goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cells import OURS, results
from delta_tta.bench.differences import standard_error
from delta_tta.bench.experiment import FAMILIES, Cell, Place
from delta_tta.corruptions.constants import TYPES
from delta_tta.streams import StreamSpec
from proving_ground import STREAMS as SCENARIOS

SHORT = 1000
"""Images of a stream; in the first table and with batches of 200 all 2,000."""
BASELINES = ("source", "bn", "tema", "tent", "pl", "ent-w", "eta", "lame", "tent+delta+lame")


@dataclasses.dataclass(frozen=True)
class Variant:
    """One line of a table."""

    name: str
    method: str
    settings: tuple[tuple[str, object], ...] = ()


def variants(objective: str) -> tuple[Variant, ...]:
    """Return the paper's method first."""
    return (
        Variant(f"{objective}+delta, as the paper", f"{objective}+delta"),
        Variant(f"{objective}+delta-b, even pace", f"{objective}+delta-b"),
        Variant(f"{objective}+delta, our defaults", f"{objective}+delta", OURS),
        Variant(f"{objective}+delta-b, our defaults", f"{objective}+delta-b", OURS),
    )


@dataclasses.dataclass(frozen=True)
class Part:
    """One table: variants on the same streams."""

    title: str
    lines: tuple[Variant, ...]
    place: Place
    corruptions: tuple[str, ...] = FAMILIES
    seeds: tuple[int, ...] = (2020,)
    batch_size: int = 64

    def cells(self, line: Variant, scenario: StreamSpec) -> list[Cell]:
        return [
            Cell(
                self.place,
                line.method,
                dataclasses.replace(scenario, seed=seed),
                (name,),
                batch_size=self.batch_size,
                settings=line.settings,
            )
            for name in self.corruptions
            for seed in self.seeds
        ]

    def all_cells(self) -> Iterator[Cell]:
        for line in self.lines:
            for scenario in SCENARIOS:
                yield from self.cells(line, scenario)

    def table(self, accuracy: Callable[[Cell], float]) -> Iterator[str]:
        """Yield its lines; differences are from the first."""
        groups = {str(one).partition(", seed")[0]: (one,) for one in SCENARIOS}
        groups["dependent"] = tuple(one for one in SCENARIOS if one.scenario.startswith("DS"))
        yield f"\n**{self.title}**\n\n| | {' | '.join(groups)} |\n|---{'|---' * len(groups)}|"
        for line in self.lines:
            shown = []
            for scenarios in groups.values():
                own, first = (self.means(one, scenarios, accuracy) for one in (line, self.lines[0]))
                text = f"{statistics.fmean(own):.1f}"
                if line is not self.lines[0]:
                    apart = [a - b for a, b in zip(own, first, strict=True)]
                    text += f" ({statistics.fmean(apart):+.1f} ± {standard_error(apart):.1f})"
                shown.append(text)
            yield f"| {line.name} | {' | '.join(shown)} |"

    def means(self, line: Variant, scenarios: Sequence[StreamSpec], accuracy: Callable[[Cell], float]) -> list[float]:
        """Return for each corruption and seed the mean over scenarios."""
        each = ([accuracy(cell) for cell in self.cells(line, one)] for one in scenarios)
        return [statistics.fmean(some) for some in zip(*each, strict=True)]


def parts(images: int | None, cifar100: Path | None) -> list[Part]:
    short, whole = Place(images=images or SHORT), Place(images=images)
    found = [
        Part("The 15 test corruptions, two seeds, B = 64", variants("tent"), whole, TYPES, (2020, 2021)),
        Part("One corruption of each family, B = 16", variants("tent"), short, batch_size=16),
        Part("One corruption of each family, B = 200", variants("tent"), whole, batch_size=200),
        Part("One corruption of each family, Ent-W", variants("ent-w"), short),
        Part("One corruption of each family, PL", variants("pl"), short),
        Part(
            "One corruption of each family, the others beside",
            (*variants("tent"), *(Variant(name, name) for name in BASELINES)),
            short,
        ),
    ]
    if cifar100 is not None:
        place = Place("cifar", str(cifar100), "resnet20-cifar100", images=images or SHORT)
        lines = (*variants("tent"), *(Variant(name, name) for name in BASELINES))
        found.append(Part("100 classes: ResNet-20 on CIFAR-100, one corruption of each family", lines, place))
    return found


def show(asked: Sequence[Part], accuracy: Callable[[Cell], float]) -> None:
    for part in asked:
        print("\n".join(part.table(accuracy)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar100", type=Path, metavar="FOLDER", help="CIFAR-100; without it that part is left out")
    parser.add_argument(
        "--images",
        type=int,
        help=f"of each stream (default: {SHORT:,}; in the first table and with batches of 200 all 2,000)",
    )
    parser.add_argument("--parts", nargs="+", type=int, metavar="N", help="only these tables, counted from 0")
    parser.add_argument("--store", type=Path, default=Path("past.db"))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    asked = parts(options.images, options.cifar100)
    wrong = [n for n in options.parts or () if n not in range(len(asked))]
    if wrong:
        sys.exit(f"Expected --parts from 0 to {len(asked) - 1}, but got {wrong[0]}.")
    asked = [part for n, part in enumerate(asked) if options.parts is None or n in options.parts]
    cells = [cell for part in asked for cell in part.all_cells()]
    result = results(cells, options.store, options.workers)
    show(asked, lambda cell: 100 * result(cell).class_mean_accuracy)


if __name__ == "__main__":
    main()
