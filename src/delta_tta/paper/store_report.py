"""The page of a store: those exhibits of the paper that were run, and all other runs."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Collection, Sequence
from pathlib import Path

import delta_tta

from ..experiments.store import Store
from ..report.runs import exhibits_of
from ..report.shown import Exhibit, Report, shows_something
from . import EXHIBITS
from .assemble import ResultIndex, exhibit, signature
from .benchmarks import BENCHMARKS, Benchmark
from .user_inputs import UserInputs


def report_of(benchmark: Benchmark, exhibits: Sequence[Exhibit], store: Store, keys: Collection[str]) -> Report:
    """Return the page of exhibits that were made."""
    first = [one for one in exhibits if one.id == "stream"]  # the quickest to read comes first
    others = [one for one in exhibits if one.id != "stream"]
    shown = tuple(one for one in (*first, *others) if shows_something(one))
    return Report("DELTA, reproduced", f"On {benchmark.description}.", shown, _about(store, keys))


def store_report(store: Store) -> Report:
    """Return the page of everything in a store: by benchmark where its cells are the paper's, else as plain tables."""
    runs = [(key, cell, result) for key, cell, result in store.results()]
    places = {(cell.place.data, cell.place.model) for _, cell, _ in runs}
    used: set[tuple[object, ...]] = set()
    exhibits: list[Exhibit] = []
    words = []
    index: ResultIndex | None = None
    for base in (benchmark for place in sorted(places) for benchmark in _benchmarks(*place)):
        left = dict(EXHIBITS)
        for benchmark in (base.full(), base):  # the whole of it where it was run
            index = ResultIndex(store, benchmark) if index is None else index.on(benchmark)
            there = [spec for spec in left.values() if not spec.why_not(benchmark) and index.holds(spec)]
            if benchmark != base:  # what is the same on both is no sign of the whole
                there = [spec for spec in there if set(spec.cells(benchmark)) != set(spec.cells(base))]
            used |= {signature(cell) for spec in there for cell in spec.cells(benchmark)}
            exhibits += [exhibit(left.pop(spec.id), index) for spec in there]
            words += [benchmark.description] if there else []
    rest = [(cell, result) for _, cell, result in runs if signature(cell) not in used]
    keys = {cell: key for key, cell, _ in runs}
    exhibits += exhibits_of(rest, lambda cell: store.trace(keys[cell]))
    lead = f"{len(runs)} runs in {store.path.name}."
    if words:
        lead = f"On {'; and on '.join(words)}{f'; and {len(rest)} other runs' if rest else ''}."
    ordered = sorted(exhibits, key=lambda one: one.id != "stream")
    shown = tuple(one for one in ordered if shows_something(one))
    return Report("Test-time adaptation, measured", lead, shown, _about(store, [key for key, _, _ in runs]))


def _benchmarks(data: str, model: str) -> list[Benchmark]:
    """Return the benchmarks with such data, with this model, wherever the files lie."""
    found = []
    for name, make in BENCHMARKS.items():
        benchmark = make(UserInputs(Path("-"), None if name in ("demo", "cifar100") else Path("-")))
        if benchmark.place.data == data:
            other = benchmark.place.model != model
            place = dataclasses.replace(benchmark.place, model=model) if other else benchmark.place
            network = model if other else benchmark.network
            found.append(dataclasses.replace(benchmark, place=place, network=network))
    return found


def _about(store: Store, keys: Collection[str]) -> dict[str, str]:
    runs = [result for _, _, result in store.results(keys)]
    versions = sorted({f"{name} {version}" for r in runs for name, version in r.about["versions"].items()})
    return {
        "Runs": f"{len(runs)}, {sum(r.samples for r in runs):,} predictions",
        "Compute": f"{sum(r.seconds for r in runs) / 60:.0f} minutes of one process",
        "Networks": "; ".join(sorted({f"{r.about['model']} ({r.about['weights']})" for r in runs})),
        "Input normalisation": "; ".join(sorted({r.about["normalisation"] for r in runs})),
        "Metric": "mean of the per-class accuracies, %; answers before each update",
        "Made with": ", ".join(versions) or f"delta-tta {delta_tta.__version__}",
        "Machine": platform.machine(),
    }
