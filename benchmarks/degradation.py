"""Where adaptation makes things worse than not adapting: a map over scenarios, corruptions, severities, batch sizes.

Runs methods on the embedded images, as our defaults have it and, with --paper, as the paper does. Prints, in Markdown,
the share of cells below Source and the worst of them, and draws every cell. With --again, what ended below Source is
judged once more, by other streams alone. Interrupted and started again with the same --store, it goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cells import OURS, results, with_seed
from delta_tta.bench.differences import standard_error
from delta_tta.bench.experiment import CLEAN, GROUPS, SCENARIOS, Cell, Place

SEVERITIES = (1, 3, 5)
BATCH_SIZES = (1, 16, 64)
METHODS = ("tent+delta", "ent-w+delta")
METRICS = {"class mean": "class_mean_accuracy", "all images": "accuracy"}
"""In an imbalanced stream a single image of a rare class moves the class mean by a point and more."""


@dataclasses.dataclass(frozen=True)
class Map:
    """One method in one behaviour; rows are images, columns scenarios and batch sizes."""

    title: str
    cells: tuple[tuple[Cell, ...], ...]

    @classmethod
    def of(
        cls,
        place: Place,
        corruptions: Sequence[str],
        method: str,
        settings: tuple[tuple[str, object], ...],
        title: str,
        batch_sizes: Sequence[int] = BATCH_SIZES,
    ) -> Map:
        rows = [*((name, severity) for name in corruptions for severity in SEVERITIES), (CLEAN, 1)]
        return cls(
            title,
            tuple(
                tuple(
                    Cell(place, method, scenario, (name,), severity=severity, batch_size=size, settings=settings)
                    for scenario, size in itertools.product(SCENARIOS, batch_sizes)
                )
                for name, severity in rows
            ),
        )


def source_of(cell: Cell) -> Cell:
    return dataclasses.replace(cell, method="source", settings=(), batch_size=64)


def summary(title: str, gains: np.ndarray, cells: tuple[tuple[Cell, ...], ...]) -> str:
    row, column = np.unravel_index(gains.argmin(), gains.shape)
    worst = cells[row][column]
    named = f"{worst.corruptions[0].replace('_', ' ')} {worst.severity}, {worst.stream}, B = {worst.batch_size}"
    return (
        f"| {title} | {gains.size} | {100 * (gains < 0).mean():.1f} % | {100 * (gains < -0.5).mean():.1f} % "
        f"| {gains.min():+.1f} ({named}) | {gains.mean():+.1f} |"
    )


def again_line(title: str, first: np.ndarray, again: np.ndarray) -> str:
    """One row a cell: what it gained at first, and with other seeds, one column for each."""
    mean = again.mean(1)
    return (
        f"| {title} | {len(first)} | {first.mean():+.2f} | {mean.mean():+.2f} ± {standard_error(mean.tolist()):.2f} "
        f"| {(first < -0.5).sum()} | {(mean < -0.5).sum()} | {first.min():+.1f} | {mean.min():+.1f} |"
    )


def draw(maps: list[tuple[Map, np.ndarray]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt
    from matplotlib.colors import TwoSlopeNorm

    figure, axes = plt.subplots(1, len(maps), figsize=(4.2 * len(maps), 9.5), sharey=True, layout="constrained")
    limit = max(5.0, *(float(-gains.min()) for _, gains in maps))
    scale = TwoSlopeNorm(0, -limit, max(5.0, *(float(gains.max()) for _, gains in maps)))
    for axis, (one, gains) in zip(np.atleast_1d(axes), maps, strict=True):
        picture = axis.imshow(gains, cmap="RdBu", norm=scale, aspect="auto", interpolation="nearest")
        axis.set_title(one.title, fontsize=10)
        names = [f"{cell.batch_size}" for cell in one.cells[0]]
        width = len(names) // len(SCENARIOS)
        axis.set_xticks(range(len(names)), names, fontsize=7)
        for i, scenario in enumerate(SCENARIOS):
            axis.text(
                width * i + (width - 1) / 2,
                len(gains) + 1.2,
                str(scenario).partition(", seed")[0].replace(" (", "\n(").replace(", π", ",\nπ"),
                ha="center",
                va="top",
                fontsize=6,
            )
            axis.axvline(width * i - 0.5, color="black", linewidth=0.6)
        for r, c in np.argwhere(gains < -0.5):
            text, colour = (
                f"{gains[r, c]:.0f}" if gains[r, c] <= -1 else "·",
                "white" if gains[r, c] < -0.6 * limit else "black",
            )
            axis.text(c, r, text, ha="center", va="center", fontsize=5, color=colour)
    rows = maps[0][0].cells
    labels = [
        f"{row[0].corruptions[0].replace('_', ' ')} {row[0].severity}" if row[0].corruptions[0] != CLEAN else "clean"
        for row in rows
    ]
    np.atleast_1d(axes)[0].set_yticks(range(len(labels)), labels, fontsize=7)
    figure.supxlabel("batch size, by scenario", fontsize=9)
    figure.colorbar(picture, ax=axes, shrink=0.5, label="points against Source")
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), metavar="METHOD")
    parser.add_argument("--paper", nargs="*", default=[], metavar="METHOD", help="these also as the paper has them")
    parser.add_argument(
        "--corruptions", nargs="+", default=["all"], metavar="NAME", help="or a group (default: all 15)"
    )
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=list(BATCH_SIZES), metavar="B")
    parser.add_argument("--images", type=int, help="only so many of the 2,000 embedded ones")
    parser.add_argument("--store", type=Path, default=Path("degradation.db"))
    parser.add_argument("--out", type=Path, default=Path("degradation.png"), help="the picture")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--again", nargs="+", type=int, default=[], metavar="SEED",
        help="run the cells below Source with these seeds too, and judge them by these alone",
    )  # fmt: skip
    parser.add_argument("--cells", action="store_true", help="name every cell more than 0.5 below Source, too")
    options = parser.parse_args()

    place = Place(images=options.images)
    names = list(itertools.chain.from_iterable(GROUPS.get(name, (name,)) for name in options.corruptions))
    sizes = options.batch_sizes
    maps = [Map.of(place, names, method, (), f"{method}, as the paper", sizes) for method in options.paper]
    maps += [Map.of(place, names, method, OURS, f"{method}, our defaults", sizes) for method in options.methods]
    asked = [cell for one in maps for row in one.cells for cell in row]
    result = results([*map(source_of, asked), *asked], options.store, options.workers)

    def points(cell: Cell, metric: str = "class_mean_accuracy") -> float:
        return 100 * (getattr(result(cell), metric) - getattr(result(source_of(cell)), metric))

    def gains(one: Map, metric: str) -> np.ndarray:
        return np.array([[points(cell, metric) for cell in row] for row in one.cells])

    print("| | judged by | cells | below Source | more than 0.5 below | worst | mean gain |")
    print("|---|---|---|---|---|---|---|")
    for one, (name, metric) in itertools.product(maps, METRICS.items()):
        gain = gains(one, metric)
        print(summary(f"{one.title} | {name}", gain, one.cells))
        for row, column in np.argwhere(gain < -0.5) if options.cells else ():
            print(f"  {gain[row, column]:+.1f} {one.cells[row][column]}")
    draw([(one, gains(one, "class_mean_accuracy")) for one in maps], options.out)
    print(f"\n{options.out}", file=sys.stderr)
    if not options.again:
        return

    below = {one.title: [cell for row in one.cells for cell in row if points(cell) < 0] for one in maps}
    first = {cell: points(cell) for cells in below.values() for cell in cells}
    others = [with_seed(cell, seed) for cell in first for seed in options.again]
    result = results([*map(source_of, others), *others], options.store, options.workers)
    print("\n| | cells below Source | mean | again | more than 0.5 below | again | worst | again |")
    print("|---|---|---|---|---|---|---|---|")
    for title, cells in below.items():
        if not cells:
            continue
        again = np.array([[points(with_seed(cell, seed)) for seed in options.again] for cell in cells])
        print(again_line(title, np.array([first[cell] for cell in cells]), again))
        for cell, own in zip(cells, again.mean(1), strict=True) if options.cells else ():
            print(f"  {first[cell]:+.1f} {own:+.1f} {cell}")


if __name__ == "__main__":
    main()
