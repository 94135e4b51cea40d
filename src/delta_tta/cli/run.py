"""delta-tta run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SettingError
from ..experiments.experiment import from_mapping, from_toml
from ..experiments.runner import default_cache
from ..experiments.store import Store
from ..report.console import rich_table
from ..report.overview import overview
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
from .support.options import (
    BatchSizes,
    DataKind,
    DataPath,
    Mean,
    Model,
    Preset,
    Scenarios,
    Seeds,
    Severities,
    Std,
    Weights,
    read_value,
)

EXAMPLES = """
A file (TOML):
  methods = ["tent", "tent+delta"]
  scenarios = ["IS+CB", "DS+CB (rho=0.1)"]
  corruptions = ["families"]     # or names, "all", "validation", "none"
  seeds = [2020, 2021]
  # also: data, path, model, weights, mean, std, preset, images, severities, batch_sizes, reset, a table [settings]

Examples:
  delta-tta run -m source -m tent -m tent+delta -c gaussian_noise -c fog --seed 2020 --seed 2021
  delta-tta run -m tent+delta --scenario DS+CB,rho=0.01 --batch-size 16 --set alpha=0.99
  delta-tta run experiment.toml --store results.db       # the same, as a file
  delta-tta run experiment.toml --engine ray --address auto --gpus-per-cell 0.5
"""
SETTINGS = "A setting of the methods, such as lr=0.001; repeat for more."


def run(
    file: Annotated[Path | None, typer.Argument(help="An experiment as TOML.")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", "-m", autocompletion=completion.method, help="Repeat for more."),
    ] = None,
    scenario: Scenarios = None,
    corruption: Annotated[
        list[str] | None,
        typer.Option(
            "--corruption",
            "-c",
            autocompletion=completion.corruption,
            help="A name, all, families, validation or none.",
        ),
    ] = None,
    severity: Severities = None,
    batch_size: BatchSizes = None,
    seed: Seeds = None,
    reset: Annotated[
        str | None, typer.Option(autocompletion=completion.among(["never"]), help="'each shift' or 'never'.")
    ] = None,
    images: Annotated[int | None, typer.Option(min=1, help="How many of the images.")] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="How many samples of each stream, from its start.")] = None,
    passes: Annotated[
        int | None, typer.Option(min=1, help="How many times each stream is repeated, without a reset.")
    ] = None,
    data: DataKind = None,
    path: DataPath = None,
    model: Model = None,
    weights: Weights = None,
    mean: Mean = None,
    std: Std = None,
    preset: Preset = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", autocompletion=completion.setting, help=SETTINGS)
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
    """Run an experiment: methods × scenarios × corruptions × severities × batch sizes × seeds, on all cores.

    Results go to a store, cell by cell. Stopped at any moment, the same command finishes the rest; what is in the store
    is not run again. Several runs may share a store.
    """
    given: dict[str, Any] = {
        "methods": method, "scenarios": scenario, "corruptions": corruption, "severities": severity,
        "batch_sizes": batch_size, "seeds": seed, "reset": reset, "images": images, "samples": samples,
        "passes": passes, "data": data,
        "path": str(path) if path else None, "model": model, "weights": str(weights) if weights else None,
        "mean": mean, "std": std,
        "preset": preset, "settings": dict(map(_setting, setting)) if setting else None,
    }  # fmt: skip
    given = {name: value for name, value in given.items() if value}
    if file is not None and given:
        names = ", ".join(given)
        raise SettingError(f"Expected either a file or options that say what to run, but got both ({names}).")
    experiment = from_toml(file) if file is not None else from_mapping(given)
    place = cache or default_cache()
    make = engine_maker(engine, place, workers, threads, address=address, cpus=cpus_per_cell, gpus=gpus_per_cell)
    with Store(store) as opened:
        plan, progress = execute(experiment.cells(), opened, place, make, tensorboard)
        runs = [(cell, result) for _, cell, result in opened.results(plan.cells)]
    if as_json:
        print_json([{"cell": cell.as_dict(), **result.as_dict()} for cell, result in runs])
    else:
        for table in overview(runs):
            consoles()[0].print(rich_table(table))
    say(f"Results: {store} ({len(runs)} of {len(plan.cells)} cells)")
    finish(progress)


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingError(f"Expected --set name=value, but got {text!r}.")
    return name, read_value(value)
