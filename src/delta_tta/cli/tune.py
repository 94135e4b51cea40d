"""delta-tta tune."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SettingError
from ..experiments import tuning
from ..experiments.experiment import Experiment, from_mapping
from ..experiments.runner import default_cache
from ..experiments.store import Store
from ..report.console import rich_table
from ..report.shown import Column, Number, Row, Table
from .support import completion as completion
from .support.console import Json, consoles, print_json
from .support.execution import Cache, StorePath, Threads, WorkersOption, engine_maker, execute, finish
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
Examples:
  delta-tta tune                                      # α and λ of tent+delta, on the embedded images
  delta-tta tune tent+delta --path IMAGES --data folder --model timm:resnet50 --images 2000
  delta-tta tune tent+delta --grid lr=0.0001,0.001,0.01 --scenario DS+CB,rho=0.1
  delta-tta tune ent-w+delta --grid alpha=0.9,0.95 --grid threshold=0.3,0.5
"""


def tune(
    method: Annotated[str, typer.Argument(autocompletion=completion.method, help="What to tune.")] = "tent+delta",
    grid: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=completion.setting,
            help="A setting and its values, as alpha=0.9,0.95; repeat for more, and every combination is tried. "
            "Default: alpha and lam, each 0.9, 0.95, 0.99 and 0.999, as in the paper.",
        ),
    ] = None,
    scenario: Scenarios = None,
    corruption: Annotated[
        list[str] | None,
        typer.Option("--corruption", "-c", autocompletion=completion.corruption, help="Default: the validation ones."),
    ] = None,
    severity: Severities = None,
    batch_size: BatchSizes = None,
    seed: Seeds = None,
    images: Annotated[int | None, typer.Option(min=1, help="How many of the images.")] = 1000,
    data: DataKind = None,
    path: DataPath = None,
    model: Model = None,
    weights: Weights = None,
    mean: Mean = None,
    std: Std = None,
    preset: Preset = None,
    store: StorePath = Path("delta-tta.db"),
    workers: WorkersOption = None,
    threads: Threads = None,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Choose settings for your own model and images, on corruptions that are not tested on.

    Every combination of the grid runs on every stream: labelled clean images, corrupted on the fly. The end names the
    best on average and how many others may be as good, and a table shows all. Results go to a store: stopped and
    started again, it continues.
    """
    given: dict[str, Any] = {
        "methods": [method], "scenarios": scenario or ["IS+CB", "DS+CB (rho=0.1)"],
        "corruptions": corruption or ["validation"], "severities": severity, "batch_sizes": batch_size, "seeds": seed,
        "images": images, "data": data, "path": str(path) if path else None, "model": model,
        "weights": str(weights) if weights else None, "mean": mean, "std": std, "preset": preset,
    }  # fmt: skip
    base = from_mapping({name: value for name, value in given.items() if value})
    asked = tuning.trials(base, dict(map(_grid, grid)) if grid else tuning.GRID)
    everything = [tuning.reference(base), *asked]
    place = cache or default_cache()
    with Store(store) as opened:
        plan, progress = execute(
            [cell for trial in everything for cell in trial.cells],
            opened,
            place,
            engine_maker("local", place, workers, threads),
        )
        found = {key: result.class_mean_accuracy for key, _, result in opened.results(plan.cells)}
    finish(progress)
    source, *judged = (tuning.judged(one, base.scenarios, lambda cell: found[plan.keys[cell]]) for one in everything)
    judged.sort(key=lambda trial: -trial.mean)
    named = f', "{base.place.preset}"' if base.place.preset else ""
    call = f'delta_tta.adapt(model, "{method}"{named}, {judged[0]})'
    if as_json:
        tried = [
            {
                "settings": dict(t.settings), "by_scenario": t.by_scenario, "mean": t.mean,
                "tied": tuning.tied(judged[0], t),
            }
            for t in judged
        ]  # fmt: skip
        streams = [one.without_seed for one in base.scenarios]
        print_json({"method": method, "scenarios": streams, "source": source.mean, "trials": tried, "best": call})
        return
    shown = consoles()[0]
    shown.print(rich_table(_table(base, source, judged)))
    shown.print(f"Best: {call}", markup=False, highlight=False, soft_wrap=True)
    rivals = sum(tuning.tied(judged[0], trial) for trial in judged[1:])
    if rivals:
        why = "less than two standard errors behind" if len(judged[0].values) > 1 else "one stream alone cannot tell"
        shown.print(
            f"Not clearly: {rivals} of the other {len(judged) - 1} may be as good ({why}). "
            "More --images, --seed or --scenario tell more; so may a setting that matters more, such as lr.",
            style="dim", markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip


def _grid(text: str) -> tuple[str, list[Any]]:
    name, equals, values = text.partition("=")
    if not equals or not values:
        raise SettingError(f"Expected --grid name=value,value, such as alpha=0.9,0.95, but got {text!r}.")
    return name, [read_value(one) for one in values.split(",")]


def _table(base: Experiment, source: tuning.Trial, judged: list[tuning.Trial]) -> Table:
    columns = [*(Column(one.without_seed) for one in base.scenarios), Column("mean")]
    rows = []
    best = [max(values) for values in zip(*((*t.by_scenario, t.mean) for t in judged), strict=True)]
    for trial in [source, *judged]:
        values = zip((*trial.by_scenario, trial.mean), best, strict=True)
        rows.append(Row(str(trial), tuple(Number(value, best=value == most) for value, most in values)))
    what = sorted({name for cell in source.cells for name in cell.corruptions})
    note = f"Class-mean accuracy, %; mean over {', '.join(what)}. Best first."
    return Table("tuning", f"Settings of {base.methods[0]}", tuple(columns), tuple(rows), note, "Settings", digits=2)
