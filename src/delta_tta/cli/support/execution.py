"""How cells are run for a command: the options that say where, progress on the side, and the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import SettingError, nearest
from ...experiments.cell import Cell
from ...experiments.lab import Lab
from ...experiments.local_engine import Engine, Inline, Workers
from ...experiments.runner import Plan, RunProgress
from ...experiments.runner import run as run_plan
from ...experiments.store import Store
from ...report.progress import failures, run_progress
from .completion import among
from .console import FAILED, complain, consoles, log, say

ENGINES = ("local", "ray")

StorePath = Annotated[Path, typer.Option("--store", help="SQLite file that keeps the results.")]
WorkersOption = Annotated[
    int | None, typer.Option(min=0, help="Processes. Default: one a core (or GPU). 0: none but this one.")
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of torch in each process. Default: cores / workers.")]
Cache = Annotated[
    Path | None, typer.Option(help="Folder for corrupted images. Default: $DELTA_TTA_CACHE, else ~/.cache/delta-tta.")
]
Board = Annotated[Path | None, typer.Option("--tensorboard", help="Write each finished run for TensorBoard, here.")]
EngineName = Annotated[
    str, typer.Option("--engine", autocompletion=among(ENGINES), help="local, or ray for a cluster.")
]
Address = Annotated[str | None, typer.Option(help="Of the Ray cluster, such as auto. Default: one on this machine.")]
Cpus = Annotated[float, typer.Option("--cpus-per-cell", min=0.01, help="Ray: what a cell takes.")]
Gpus = Annotated[float, typer.Option("--gpus-per-cell", min=0, help="Ray: what a cell takes; 0.25 shares a GPU.")]


def execute(
    cells: Sequence[Cell],
    store: Store,
    cache: Path,
    make: Callable[[], Engine],
    tensorboard: Path | None = None,
    kept: bool = True,
) -> tuple[Plan, RunProgress]:
    """Run cells with progress on the side; Ctrl-C and SIGTERM leave the store, if it is `kept`, in order."""
    plan = Plan.of(cells, Lab(cache))
    board = _board(tensorboard)
    try:
        missing = len(plan.cells) - len(store.done(list(plan.cells)))
        log.debug("%d cells, %d of them to run; store %s, cache %s", len(plan.cells), missing, store.path, cache)
        engine = make() if missing else Inline(cache)
        with run_progress(consoles()[1], plan) as on_progress:

            def both(progress: RunProgress) -> None:
                on_progress(progress)
                board(progress)

            progress = run_plan(plan, store, engine, both)
    except KeyboardInterrupt:
        if kept:
            done = len(store.done(list(plan.cells)))
            say(f"{done} of {len(plan.cells)} cells are in {store.path}; the same command continues.")
        raise
    failures(complain, plan, progress.failed)
    return plan, progress


def engine_maker(
    name: str,
    cache: Path,
    workers: int | None = None,
    threads: int | None = None,
    *,
    address: str | None = None,
    cpus: float = 1,
    gpus: float = 0,
) -> Callable[[], Engine]:
    """Return what makes the engine once it is needed."""
    if name not in ENGINES:
        raise SettingError(f"Unknown engine {name!r}.{nearest(name, ENGINES)}")
    if name == "ray":
        from ...experiments.ray_engine import RayEngine

        return lambda: RayEngine(cache, address, cpus, gpus)
    return lambda: Inline(cache) if workers == 0 else Workers(cache, workers, threads)


def finish(progress: RunProgress) -> None:
    """Leave with an exit code that says whether everything was run."""
    if progress.failed:
        raise typer.Exit(FAILED)


def _board(folder: Path | None) -> Any:
    if folder is None:
        return lambda progress: None
    from ...report.board import Board as Writer

    return Writer(folder)
