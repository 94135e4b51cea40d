"""delta-tta demo."""

from __future__ import annotations

from typing import Annotated

import typer

from ..adapt import RECOMMENDED
from ..experiments.experiment import SCENARIOS, Experiment
from ..experiments.place import Place
from .support import completion as completion
from .support.comparison import CORRUPTION, BatchSize, Images, Outputs, Page, Picture, Seed, Severity, run_comparison
from .support.console import Json
from .support.execution import WorkersOption

METHODS = ("source", "bn", "tent", "tent+delta", RECOMMENDED)
"""The paper's point, and what `adapt(model)` does."""
EXAMPLES = """
Examples:
  delta-tta demo                                # the point of it all, in two minutes
  delta-tta demo --corruption gaussian_noise    # under another corruption
  delta-tta demo --picture "" --page ""         # the table alone
"""

Corruption = Annotated[
    str,
    typer.Option(
        "--corruption", "-c", autocompletion=completion.corruption, help="Which corruption; 'none' for clean images."
    ),
]


def demo(
    corruption: Corruption = CORRUPTION,
    severity: Severity = 5,
    batch_size: BatchSize = 64,
    seed: Seed = 2020,
    images: Images = None,
    picture: Picture = "delta-tta-demo.png",
    page: Page = "delta-tta-demo.html",
    workers: WorkersOption = None,
    as_json: Json = False,
) -> None:
    """Show the paper's point on the embedded images: five methods over the four test scenarios, in about two minutes.

    Four of them are as in the paper; the last is what `adapt(model)` does.
    """
    asked = Experiment(
        METHODS,
        Place(images=images),
        SCENARIOS,
        corruptions=(corruption,),
        severities=(severity,),
        batch_sizes=(batch_size,),
        seeds=(seed,),
    )
    run_comparison(asked.cells(), workers, Outputs(as_json, picture, page))
