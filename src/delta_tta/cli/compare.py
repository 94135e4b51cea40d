"""delta-tta compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..experiments.experiment import SCENARIOS, Experiment, scenarios
from ..experiments.place import Place
from .support import completion as completion
from .support.compare_stores import show_differences
from .support.comparison import CORRUPTION, BatchSize, Images, Outputs, Page, Picture, Seed, Severity, run_comparison
from .support.console import Json
from .support.execution import WorkersOption
from .support.options import Mean, Scenarios, Std, clean_kind

EXAMPLES = """
Examples:
  delta-tta compare tent tent+tbr tent+dot tent+delta
  delta-tta compare source tent+delta --scenario DS+CB,rho=0.01 -c fog
  delta-tta compare tent tent+delta --model resnet20-cifar100 --clean data/cifar100 --preset cifar100-c
  delta-tta compare before.db after.db          # two stores of results: what changed, cell by cell
"""

Corruptions = Annotated[
    list[str] | None,
    typer.Option(
        "--corruption",
        "-c",
        autocompletion=completion.corruption,
        help="Which, 'none' for clean images; repeat for the mean over several. Default: motion_blur.",
    ),
]


def compare(
    methods: Annotated[
        list[str],
        typer.Argument(
            autocompletion=completion.method,
            help="Methods, such as tent+delta (see `delta-tta methods`), or two stores.",
        ),
    ],
    model: Annotated[
        str, typer.Option(autocompletion=completion.model, help="See delta_tta.models.load.")
    ] = "resnet20-cifar10",
    weights: Annotated[Path | None, typer.Option(help="A .safetensors file or torch checkpoint.")] = None,
    mean: Mean = None,
    std: Std = None,
    clean: Annotated[
        Path | None, typer.Option(help="Clean CIFAR or folder of images; default: embedded images.")
    ] = None,
    scenario: Scenarios = None,
    corruption: Corruptions = None,
    severity: Severity = 5,
    batch_size: BatchSize = 64,
    preset: Annotated[
        str,
        typer.Option(
            autocompletion=completion.preset, help="The paper's settings for a data set; auto: those of the data."
        ),
    ] = "auto",
    seed: Seed = 2020,
    images: Images = None,
    picture: Picture = "",
    page: Page = "",
    markdown: Annotated[Path | None, typer.Option(help="Also write the table as Markdown.")] = None,
    workers: WorkersOption = None,
    as_json: Json = False,
) -> None:
    """Compare methods on one model and one data set, corrupted on the fly, over test scenarios; or two stores.

    EATA, which needs images of the training distribution, gets the clean ones. The last results stay in the
    cache; `delta-tta run` keeps them where you say. Of two stores it tells what changed, with a paired test.
    """
    if len(methods) == 2 and all(Path(name).is_file() for name in methods):
        show_differences(Path(methods[0]), Path(methods[1]), as_json)
        return
    kept = str(weights) if weights else None
    place = Place(
        clean_kind(clean),
        str(clean) if clean else None,
        model,
        kept,
        preset=preset,
        images=images,
        mean=mean,
        std=std,
    )
    streams = tuple(scenarios(scenario)) if scenario else SCENARIOS
    experiment = Experiment(
        tuple(methods),
        place,
        streams,
        corruptions=tuple(corruption or [CORRUPTION]),
        severities=(severity,),
        batch_sizes=(batch_size,),
        seeds=(seed,),
    )
    run_comparison(experiment.cells(), workers, Outputs(as_json, picture, page, markdown))
