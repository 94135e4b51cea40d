"""delta-tta run."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from ..bench.engine import Engine, Inline, Workers
from ..bench.experiment import Cell, from_mapping, from_toml
from ..bench.lab import Lab
from ..bench.runner import Plan, Tally, default_cache
from ..bench.runner import run as run_plan
from ..bench.store import Store
from ..errors import SettingError, nearest
from ..report.console import rich_table
from ..report.overview import overview
from ..report.progress import failures, run_progress
from .shared import consoles, spoken_errors

EXAMPLES = """
[bold]Examples[/]

delta-tta run -m source -m tent -m tent+delta -c gaussian_noise -c fog --seed 2020 --seed 2021

delta-tta run -m tent+delta --scenario "DS+CB (rho=0.01)" --batch-size 16 --set alpha=0.99

delta-tta run experiment.toml --store results.db      the same, as a file

delta-tta run experiment.toml --engine ray --address auto --gpus-per-cell 0.5

[bold]A file[/]

methods = ["tent", "tent+delta"]

scenarios = ["IS+CB", "DS+CB (rho=0.1)"]

corruptions = ["families"]     # or names, "all", "validation", "none"

seeds = [2020, 2021]

[dim]also: data, path, model, weights, preset, images, severities, batch_sizes, reset, and a table [settings][/]
"""
ENGINES = ("local", "ray")
SETTINGS = "A setting of the methods, such as lr=0.001; repeat for more."

StorePath = Annotated[Path, typer.Option("--store", help="SQLite file that keeps the results.")]
WorkersOption = Annotated[
    int | None, typer.Option(min=0, help="Processes. Default: one a core (or GPU). 0: none but this one.")
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of torch in each process. Default: cores / workers.")]
Cache = Annotated[
    Path | None, typer.Option(help="Folder for corrupted images. Default: $DELTA_TTA_CACHE, else ~/.cache/delta-tta.")
]
Board = Annotated[Path | None, typer.Option("--tensorboard", help="Write each finished run for TensorBoard, here.")]
EngineName = Annotated[str, typer.Option("--engine", help="local, or ray for a cluster.")]
Address = Annotated[str | None, typer.Option(help="Of the Ray cluster, such as auto. Default: one on this machine.")]
Cpus = Annotated[float, typer.Option("--cpus-per-cell", min=0.01, help="Ray: what a cell takes.")]
Gpus = Annotated[float, typer.Option("--gpus-per-cell", min=0, help="Ray: what a cell takes; 0.25 shares a GPU.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def run(
    file: Annotated[Path | None, typer.Argument(help="An experiment as TOML.")] = None,
    method: Annotated[list[str] | None, typer.Option("--method", "-m", help="Repeat for more.")] = None,
    scenario: Annotated[list[str] | None, typer.Option(help="Such as 'DS+CB (rho=0.1)'; repeat for more.")] = None,
    corruption: Annotated[
        list[str] | None, typer.Option("--corruption", "-c", help="A name, all, families, validation or none.")
    ] = None,
    severity: Annotated[list[int] | None, typer.Option("--severity", "-s", help="1 to 5; repeat for more.")] = None,
    batch_size: Annotated[list[int] | None, typer.Option("--batch-size", "-b", help="Repeat for more.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Of the streams; repeat for more.")] = None,
    reset: Annotated[str | None, typer.Option(help="'each shift' or 'never'.")] = None,
    images: Annotated[int | None, typer.Option(min=1, help="Only so many images.")] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Of each stream only so many, from its start.")] = None,
    passes: Annotated[int | None, typer.Option(min=1, help="Meet each stream so many times, without a reset.")] = None,
    data: Annotated[str | None, typer.Option(help="demo, cifar[-c], imagenet-c, imagenet-r, folder, video.")] = None,
    path: Annotated[Path | None, typer.Option(help="Where the images are.")] = None,
    model: Annotated[str | None, typer.Option(help="See delta_tta.models.load.")] = None,
    weights: Annotated[Path | None, typer.Option(help="A .safetensors file or torch checkpoint.")] = None,
    preset: Annotated[str | None, typer.Option(help="The paper's settings for a data set.")] = None,
    setting: Annotated[list[str] | None, typer.Option("--set", help=SETTINGS)] = None,
    store: StorePath = Path("delta-tta.db"),
    workers: WorkersOption = None,
    threads: Threads = None,
    cache: Cache = None,
    engine: EngineName = "local",
    address: Address = None,
    cpus_per_cell: Cpus = 1,
    gpus_per_cell: Gpus = 0,
    tensorboard: Board = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Run an experiment: methods × scenarios × corruptions × severities × batch sizes × seeds, on all cores.

    Results go to a store, cell by cell. Stopped at any moment, the same command finishes the rest; what is in the store
    is not run again. Several runs may share a store.
    """
    given: dict[str, Any] = {
        "methods": method, "scenarios": scenario, "corruptions": corruption, "severities": severity,
        "batch_sizes": batch_size, "seeds": seed, "reset": reset, "images": images, "samples": samples,
        "passes": passes, "data": data,
        "path": str(path) if path else None, "model": model, "weights": str(weights) if weights else None,
        "preset": preset, "settings": dict(map(_setting, setting)) if setting else None,
    }  # fmt: skip
    given = {name: value for name, value in given.items() if value}
    with spoken_errors():
        if file is not None and given:
            names = ", ".join(given)
            raise SettingError(f"Expected either a file or options that say what to run, but got both ({names}).")
        experiment = from_toml(file) if file is not None else from_mapping(given)
        place = cache or default_cache()
        make = engine_maker(engine, place, workers, threads, address, cpus_per_cell, gpus_per_cell)
        with Store(store) as opened:
            plan, tally = execute(experiment.cells(), opened, place, make, tensorboard, quiet)
            runs = [(cell, result) for _, cell, result in opened.results(plan.cells)]
        shown, aside = consoles()
        if as_json:
            rows = [{"cell": cell.as_dict(), **result.as_dict()} for cell, result in runs]
            typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        else:
            for table in overview(runs):
                shown.print(rich_table(table))
        aside.print(f"Results: {store} ({len(runs)} of {len(plan.cells)} cells)", highlight=False, soft_wrap=True)
        finish(tally)


def execute(
    cells: Sequence[Cell],
    store: Store,
    cache: Path,
    make: Callable[[], Engine],
    tensorboard: Path | None = None,
    quiet: bool = False,
) -> tuple[Plan, Tally]:
    """Run cells with progress on the side; Ctrl-C and SIGTERM leave the store in order."""
    _, aside = consoles()
    plan = Plan.of(cells, Lab(cache))
    board = _board(tensorboard)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        missing = len(plan.cells) - len(store.done(list(plan.cells)))
        engine = make() if missing else Inline(cache)
        with run_progress(aside, plan, quiet) as watch:

            def both(tally: Tally) -> None:
                watch(tally)
                board(tally)

            tally = run_plan(plan, store, engine, both)
    except KeyboardInterrupt:
        done = len(store.done(list(plan.cells)))
        aside.print(f"{done} of {len(plan.cells)} cells are in {store.path}; the same command goes on.", soft_wrap=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    failures(aside, plan, tally.failed)
    return plan, tally


def engine_maker(
    name: str,
    cache: Path,
    workers: int | None = None,
    threads: int | None = None,
    address: str | None = None,
    cpus: float = 1,
    gpus: float = 0,
) -> Callable[[], Engine]:
    """Return what makes the engine once it is needed."""
    if name not in ENGINES:
        raise SettingError(f"Unknown engine {name!r}.{nearest(name, ENGINES)}")
    if name == "ray":
        from ..bench.cluster import RayEngine

        return lambda: RayEngine(cache, address, cpus, gpus)
    return lambda: Inline(cache) if workers == 0 else Workers(cache, workers, threads)


def finish(tally: Tally) -> None:
    """Leave with an exit code that says whether everything was run."""
    if tally.failed:
        raise typer.Exit(1)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _board(folder: Path | None) -> Any:
    if folder is None:
        return lambda tally: None
    from ..report.board import Board as Writer

    return Writer(folder)


def _setting(text: str) -> tuple[str, Any]:
    """Read name=value; numbers and booleans as such."""
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"expected name=value, but got {text!r}", param_hint="--set")
    words = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return name, words[value.lower()]
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value
