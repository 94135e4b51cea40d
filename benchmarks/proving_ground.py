"""The proving ground: methods over all development networks, corruptions and clean images, streams and batch sizes.

    python benchmarks/proving_ground.py tent+delta recommended --quick
    python benchmarks/proving_ground.py --split validation METHOD ...     to choose; the test corruptions are to report

METHOD is written as for `adapt`; "recommended", the default, is what `adapt(model)` does on each network. Settings may
follow an @, as in "recommended@filter=causal" or "recommended@guard=off". Every cell is compared with Source and with
the paper's tent+delta on the same stream, or with the methods of --against. Prints Markdown, draws a picture, keeps
every run in a store and goes on where it was stopped. `--quick` is meant for a quarter of an hour on two cores, the
standard size for three hours, `--full` for a night. The networks: benchmarks/development.py.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from cells import chosen, results
from delta_tta.adapt import RECOMMENDED, WITHOUT_BATCH_NORM
from delta_tta.cli.support.execution import ENGINES
from delta_tta.cli.support.options import read_value
from delta_tta.corruptions.constants import TYPES, VALIDATION
from delta_tta.experiments.differences import standard_error
from delta_tta.experiments.evaluate import Result
from delta_tta.experiments.experiment import CLEAN, FAMILIES, Cell
from delta_tta.recipe import parse
from delta_tta.streams import StreamSpec
from development import Network, add_folder_option, networks

STREAMS = (
    StreamSpec("IS+CB"),
    StreamSpec("DS+CB", rho=1.0),
    StreamSpec("DS+CB", rho=0.1),
    StreamSpec("DS+CB", rho=0.01),
    StreamSpec("IS+CI", pi=0.05),
    StreamSpec("DS+CI", rho=0.5, pi=0.05),
)
FEW = (STREAMS[0], STREAMS[2], STREAMS[5])
PAPER = "tent+delta"
FIRST = 256
"""Samples of the beginning of a stream that are looked at by themselves."""
HARM = 0.5
"""Points below which a cell counts as harmed."""
EXPENSIVE, VERY = 1.5, 8.0
"""Networks of at least this cost get fewer cells and shorter streams; of the second, still fewer."""
DEFAULT = "recommended"


@dataclass(frozen=True)
class Scale:
    """How much is run.

    Attributes:
        corruptions: how many of the split; clean images always.
        streams: at B = 64.
        seeds: at B = 64.
        samples: of each stream.
        sizes: other batch sizes, on the first two corruptions and clean images, on three streams.
        single: samples of a stream of single images (B = 1), on one corruption; 0 for none.
    """

    corruptions: int
    streams: tuple[StreamSpec, ...]
    seeds: tuple[int, ...]
    samples: int
    sizes: tuple[int, ...]
    single: int

    def at(self, cost: float) -> Scale:
        """Return the scale for a network of such a cost."""
        if cost < EXPENSIVE:
            return self
        very, quick = cost >= VERY, self.corruptions <= 2
        return dataclasses.replace(
            self,
            corruptions=1 if very and quick else min(self.corruptions, 4 if self.corruptions > 4 else 2),
            streams=FEW[:2] if very or quick else FEW,
            seeds=self.seeds[:1],
            samples=min(self.samples, 320 if very else 640),
            sizes=() if quick else self.sizes if very else self.sizes[:1],
            single=self.single if very else 0,
        )


SCALES = {
    "quick": Scale(2, FEW, (2020,), 640, (16,), 0),
    "standard": Scale(4, STREAMS, (2020, 2021), 1000, (16, 200), 300),
    "full": Scale(15, STREAMS, (2020, 2021, 2022, 2023), 2000, (16, 200), 1000),
}
SPLITS = {"test": (*FAMILIES, *(name for name in TYPES if name not in FAMILIES)), "validation": VALIDATION}


def with_settings(method: str) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """Return the method and the settings of "METHOD@NAME=VALUE,NAME=VALUE"."""
    name, _, given = method.partition("@")
    pairs = (pair.partition("=") for pair in given.split(",") if pair)
    return name, tuple((key, read_value(value)) for key, _, value in pairs)


@dataclass(frozen=True)
class Case:
    """One stream on one network, whatever the method."""

    network: Network
    corruption: str
    stream: StreamSpec
    batch_size: int
    samples: int

    @property
    def kind(self) -> str:
        """Whether the order tells something of the classes."""
        return "dependent" if self.stream.dependent else "shuffled"

    def cell(self, method: str) -> Cell:
        """Return the run of a method."""
        few = self.network.few if self.stream.dependent or self.stream.imbalanced else None
        name, settings = with_settings(method)
        if name == DEFAULT:
            name = RECOMMENDED if self.network.norm == "batch" else WITHOUT_BATCH_NORM
        return Cell(
            few or self.network.place,
            name,
            self.stream,
            (self.corruption,),
            batch_size=self.batch_size,
            samples=self.samples,
            settings=settings,
        )

    def __str__(self) -> str:
        corruption = "clean" if self.corruption == CLEAN else self.corruption.replace("_", " ")
        return f"{self.network.name}, {corruption}, {self.stream}, B = {self.batch_size}"


def cases(found: Sequence[Network], scale: Scale, corruptions: Sequence[str]) -> Iterator[Case]:
    """Yield everything a method meets."""
    for network in found:
        own = scale.at(network.cost)
        names = (*corruptions[: own.corruptions], CLEAN)
        for name in names:
            for stream in own.streams:
                for seed in own.seeds:
                    yield Case(network, name, dataclasses.replace(stream, seed=seed), 64, own.samples)
        for size in own.sizes:
            for name in (*names[: min(2, own.corruptions)], CLEAN):
                for stream in FEW:
                    yield Case(network, name, stream, size, own.samples)
        for stream in FEW[:2] if own.single else ():
            yield Case(network, names[0], stream, 1, own.single)


@dataclass(frozen=True)
class Gain:
    """A method against another on one case, in points."""

    case: Case
    points: float
    first: float


def gains(asked: Sequence[Case], method: str, against: str, result: Callable[[Cell], Result]) -> list[Gain]:
    """Return the differences, case by case."""
    made = []
    for case in asked:
        one, other = result(case.cell(method)), result(case.cell(against))
        first = [100 * float(r.trace.correct[:FIRST].mean()) for r in (one, other)]
        points = 100 * (one.class_mean_accuracy - other.class_mean_accuracy)
        made.append(Gain(case, points, first[0] - first[1]))
    return made


def groups(asked: Sequence[Case]) -> dict[str, Callable[[Case], bool]]:
    """Return what a table has lines for."""
    found: dict[str, Callable[[Case], bool]] = {"all": lambda case: True}
    for kind in ("shuffled", "dependent"):
        found[kind] = lambda case, kind=kind: case.kind == kind
    found["clean images"] = lambda case: case.corruption == CLEAN
    for count in sorted({case.network.classes for case in asked}):
        found[f"{count:,} classes"] = lambda case, count=count: case.network.classes == count
    for size in sorted({case.batch_size for case in asked}):
        found[f"B = {size}"] = lambda case, size=size: case.batch_size == size
    for name in dict.fromkeys(case.network.name for case in asked):
        found[name] = lambda case, name=name: case.network.name == name
        for kind in ("shuffled", "dependent"):
            found[f"{name}, {kind}"] = lambda case, name=name, kind=kind: (
                case.network.name == name and case.kind == kind
            )
    return found


def line(label: str, own: Sequence[Gain]) -> str:
    """Return a line of the table; the standard error is over networks and corruptions, whose streams go together."""
    together: dict[tuple[str, str], list[float]] = {}
    for gain in own:
        together.setdefault((gain.case.network.name, gain.case.corruption), []).append(gain.points)
    error = standard_error([statistics.fmean(points) for points in together.values()])
    worst = min(own, key=lambda gain: gain.points)
    harmed = 100 * statistics.fmean(gain.points < -HARM for gain in own)
    first = f"{statistics.fmean(gain.first for gain in own):+.1f} (worst {min(gain.first for gain in own):+.1f})"
    mean = f"{statistics.fmean(gain.points for gain in own):+.1f} ± {error:.1f}"
    return f"| {label} | {len(own)} | {mean} | {harmed:.0f} % | {worst.points:+.1f} ({worst.case}) | {first} |"


def table(method: str, against: str, made: Sequence[Gain]) -> Iterator[str]:
    """Yield the lines of one comparison."""
    yield f"\n**{method} against {against}, points of class-mean accuracy**\n"
    yield f"| | cells | mean | more than {HARM} below | worst | first {FIRST} samples |"
    yield "|---|---|---|---|---|---|"
    for label, belongs in groups([gain.case for gain in made]).items():
        own = [gain for gain in made if belongs(gain.case)]
        if own:
            yield line(label, own)


def picture(made: dict[str, Sequence[Gain]], path: Path) -> None:
    """Draw the mean gain over Source on each network, by kind of stream; a short line is the worst cell."""
    names = list(dict.fromkeys(gain.case.network.name for own in made.values() for gain in own))
    height = 1.6 + 0.45 * len(names)
    figure = Figure(figsize=(10, height), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, kind in zip(axes, ("shuffled", "dependent"), strict=True):
        axis.axvline(0, color="black", linewidth=0.8)
        for number, (method, own) in enumerate(made.items()):
            offset = 0.3 * (number - (len(made) - 1) / 2) / max(1, len(made) - 1)
            points = {
                name: [g.points for g in own if g.case.network.name == name and g.case.kind == kind] for name in names
            }
            rows = [(place + offset, points[name]) for place, name in enumerate(names) if points[name]]
            axis.scatter([statistics.fmean(p) for _, p in rows], [y for y, _ in rows], color=f"C{number}", label=method)
            axis.scatter([min(p) for _, p in rows], [y for y, _ in rows], color=f"C{number}", marker="|")
        axis.set(title=f"{kind} streams", xlabel="points over Source")
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(made))
    figure.savefig(path, dpi=110)


def takes(method: str, network: Network) -> bool:
    """Whether a method can run on a network."""
    name, _ = with_settings(method)
    return network.norm == "batch" or name == DEFAULT or not parse(name).needs_batch_norm


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=[DEFAULT])
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_const", dest="scale", const="quick", default="standard")
    sizes.add_argument("--full", action="store_const", dest="scale", const="full")
    parser.add_argument("--split", choices=SPLITS, default="test", help="which corruptions (default: test)")
    parser.add_argument("--against", nargs="+", default=[PAPER], metavar="METHOD", help=f"default: {PAPER}")
    parser.add_argument("--networks", nargs="+", metavar="NAME", help="only those whose name holds one of these")
    parser.add_argument("--seeds", type=int, help="how many, at most what the size says")
    parser.add_argument("--samples", type=int, help="of each stream, instead of what the size says")
    parser.add_argument("--out", type=Path, default=Path("proving-ground.png"), help="the picture")
    parser.add_argument("--store", type=Path, default=Path("proving-ground.db"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--engine", choices=ENGINES, default="local", help="ray: the cluster of RAY_ADDRESS, or a local one"
    )
    add_folder_option(parser)
    return parser.parse_args()


def main() -> None:
    """Run the command."""
    given = options()
    found, missing = networks(given.development)
    for why in missing:
        print(why, file=sys.stderr)
    found = chosen(found, given.networks)
    scale = SCALES[given.scale]
    if given.seeds:
        scale = dataclasses.replace(scale, seeds=scale.seeds[: given.seeds])
    if given.samples:
        scale = dataclasses.replace(scale, samples=given.samples, single=min(given.samples, scale.single))
    asked = list(cases(found, scale, SPLITS[given.split]))
    lines = list(dict.fromkeys(["source", PAPER, *given.against, *given.methods]))
    wanted = [case.cell(method) for method in lines for case in asked if takes(method, case.network)]
    result = results(wanted, given.store, given.workers, traces=True, engine=given.engine)
    print(f"{len(asked)} cells a method, {given.split} corruptions and clean images, {given.scale} size.")
    shown: dict[str, Sequence[Gain]] = {
        PAPER: gains([case for case in asked if takes(PAPER, case.network)], PAPER, "source", result)
    }
    for method in dict.fromkeys(given.methods):
        own = [case for case in asked if takes(method, case.network)]
        shown[method] = gains(own, method, "source", result)
        print("\n".join(table(method, "Source", shown[method])))
        for other in given.against:
            shared = [case for case in own if takes(other, case.network)]
            if other != method and shared:
                print("\n".join(table(method, other, gains(shared, method, other, result))))
    picture(shown, given.out)
    print(f"\nThe picture: {given.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
