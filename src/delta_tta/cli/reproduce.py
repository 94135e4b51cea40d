"""delta-tta reproduce."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.table import Table as RichTable

from ..errors import SettingError, nearest
from ..experiments.lab import Lab
from ..experiments.local_engine import cores
from ..experiments.runner import Plan, default_cache
from ..experiments.store import Store
from ..paper import EXHIBITS, Benchmark, ResultIndex, exhibit
from ..paper import benchmark as benchmark
from ..paper.store_report import report_of
from ..report.console import rich_table
from ..report.files import write_exhibit
from ..report.page import write_page
from ..report.shown import Exhibit, Table
from .support import completion as completion
from .support.console import Json, consoles, print_json, say
from .support.execution import (
    Address,
    Board,
    Cache,
    Cpus,
    EngineName,
    Gpus,
    StorePath,
    Threads,
    WorkersOption,
    engine_maker,
    execute,
    finish,
)

EXAMPLES = """
Examples:
  delta-tta reproduce --list                    # what there is, and what it costs here
  delta-tta reproduce table-5                   # on the embedded images
  delta-tta reproduce table-5 --on cifar100 --data data/cifar100 --without cotta   # the most expensive method
  delta-tta reproduce --all --on cifar100-c --data CIFAR-100-C --weights resnext29.pt
"""


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(autocompletion=completion.exhibit, help="Such as table-5 or figure-2; see --list."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All tables and figures.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="Show what there is and what it costs here.")] = False,
    on: Annotated[
        str,
        typer.Option(
            autocompletion=completion.benchmark, help="demo, cifar100, cifar100-c, imagenet-c, imagenet-r or ytbb-sub."
        ),
    ] = "demo",
    data: Annotated[Path | None, typer.Option(help="Where the images are.")] = None,
    weights: Annotated[Path | None, typer.Option(help="Of the network, instead of those that come with it.")] = None,
    clean: Annotated[
        Path | None, typer.Option(help="Clean images, where those at --data are all corrupted (Table 7, Figure 3).")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="How many samples of each stream, to try it out.", min=1)] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="A method to leave out, such as cotta; may be repeated.")
    ] = None,
    full: Annotated[bool, typer.Option(help="All corruptions, seeds and images: for those with a GPU.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the tables, pictures and the page. Default: reproduced-ON."),
    ] = None,
    store: StorePath = Path("delta-tta.db"),
    workers: WorkersOption = None,
    threads: Threads = None,
    cache: Cache = None,
    engine: EngineName = "local",
    address: Address = None,
    cpus_per_cell: Cpus = 1,
    gpus_per_cell: Gpus = 0,
    tensorboard: Board = None,
    as_json: Json = False,
) -> None:
    """Run the paper's tables and figures, and set the results beside what the paper prints.

    With a data set of the paper it is the paper's setting; on the embedded images, or on CIFAR-100 corrupted on the
    fly, the same experiment on other images, and the output says so. Stopped at any moment, the same command continues.
    """
    place, lab = benchmark(on, data, weights, full, clean, samples, without or ()), Lab(cache or default_cache())
    if listing:
        _list([found for name in names or EXHIBITS for found in _named(name)], place, lab, store, as_json)
        return
    chosen = _chosen(names or [], everything, place)
    with Store(store) as opened:
        say(f"On {place.description}.")
        cells = list(dict.fromkeys(cell for name in chosen for cell in EXHIBITS[name].cells(place)))
        make = engine_maker(
            engine, lab.cache, workers, threads, address=address, cpus=cpus_per_cell, gpus=gpus_per_cell
        )
        plan, progress = execute(cells, opened, lab.cache, make, tensorboard)
        index = ResultIndex(opened, place, plan.keys, lab)
        made = [exhibit(EXHIBITS[name], index) for name in chosen]
        folder = out or Path(f"reproduced-{on}")
        for one in made:
            write_exhibit(one, folder)
        write_page(report_of(place, made, opened, plan.cells), folder / "report.html")
    _show(made, as_json, place, folder)
    say(f"Files: {folder}; the page: {folder / 'report.html'}")
    finish(progress)


def _chosen(names: Sequence[str], everything: bool, place: Benchmark) -> list[str]:
    """Return the exhibits that are asked for; those that cannot be had here are an error, or left out of all."""
    wanted = list(dict.fromkeys(found for name in names for found in _named(name)))
    refused = {name: EXHIBITS[name].why_not(place) for name in wanted or EXHIBITS}
    refused = {name: why for name, why in refused.items() if why}
    if names and refused:
        raise SettingError(" ".join(f"{name} cannot be made on '{place.name}'. {why}" for name, why in refused.items()))
    if not names and not everything:
        raise SettingError("Expected the name of a table or figure, or --all; `delta-tta reproduce --list` shows them.")
    return wanted or [name for name in EXHIBITS if name not in refused]


def _named(name: str) -> list[str]:
    """Return the exhibit of this name; "figure-8" has two parts."""
    parts = [name] if name in EXHIBITS else [one for one in EXHIBITS if one[:-1] == name and one[-1] in "ab"]
    if not parts:
        raise SettingError(f"Unknown exhibit {name!r}.{nearest(name, EXHIBITS)}")
    return parts


def _show(made: Sequence[Exhibit], as_json: bool, place: Benchmark, folder: Path) -> None:
    if as_json:
        where = {"on": place.name, "description": place.description, "folder": str(folder)}
        print_json([{**where, "kind": type(one).__name__.lower(), **dataclasses.asdict(one)} for one in made])
        return
    shown, _ = consoles()
    for one in made:
        if isinstance(one, Table):
            shown.print(rich_table(one))
            shown.print()


def _list(chosen: Sequence[str], place: Benchmark, lab: Lab, store: Path, as_json: bool) -> None:
    there: set[str] = set()
    if store.exists():
        with Store(store, create=False) as opened:
            there = {key for key, _, _ in opened.results()}
    rate = _rate(place, lab) * cores()
    minutes: dict[str, float] = {}  # of every cell that is to be run; exhibits share cells
    rows = []
    for name in chosen:
        why = EXHIBITS[name].why_not(place)
        plan = Plan.of([] if why else EXHIBITS[name].cells(place), lab)
        own = {key: plan.work(key) / rate / 60 for key in plan.cells if key not in there}
        rows.append((name, EXHIBITS[name].title, len(plan.cells), len(plan.cells) - len(own), sum(own.values()), why))
        minutes |= own
    if as_json:
        heads = ("name", "title", "cells", "in_store", "minutes_left", "why_not")
        print_json([dict(zip(heads, row, strict=True)) for row in rows])
    else:
        table = RichTable("name", "what", "cells", "in the store", "minutes left", title=f"On {place.description}")
        for name, title, cells, found, left, why in rows:
            table.add_row(name, f"{title}. Not here: {why}" if why else title, str(cells), str(found), f"{left:.1f}")
        consoles()[0].print(table)
    say(f"About {sum(minutes.values()):.0f} minutes on {cores()} cores for all of them, as they share cells.")


def _rate(place: Benchmark, lab: Lab) -> float:
    """Return how many images a second the model predicts on one core, measured for a moment."""
    images, _ = next(lab.images(place.place, place.corruptions[0], 5).batches(range(32), 32))
    named = lab.model(place.place)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            x = named.normalisation(images)
            named.model(x)
            start, count = time.perf_counter(), 0
            while time.perf_counter() - start < 0.5:
                named.model(x)
                count += len(x)
            return count / (time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
