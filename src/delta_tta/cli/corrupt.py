"""delta-tta corrupt."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from ..corruptions.constants import TYPES, VALIDATION
from .support.completion import corruption_type
from .support.console import Json, consoles, print_json
from .support.options import clean_images

EXAMPLES = """
Examples:
  delta-tta corrupt demo-c                                  # the embedded images, CIFAR-C layout, 15 types
  delta-tta corrupt cifar100-c --clean data/cifar100        # CIFAR-100-C from pickles, npz or folders
  delta-tta corrupt imagenet-c --clean val --only fog --only snow -s 5   # image files, ImageNet-C layout
"""


class Constants(str, Enum):
    """Which constants the severities mean."""

    cifar = "cifar"
    imagenet = "imagenet"


def corrupt(
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    clean: Annotated[
        Path | None, typer.Option(help="Clean CIFAR or folder of images; default: embedded images.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(autocompletion=corruption_type, help="A corruption; repeat for more. Default: the 15."),
    ] = None,
    validation: Annotated[bool, typer.Option(help="The 4 validation types too.")] = False,
    severity: Annotated[
        list[int] | None,
        typer.Option("--severity", "-s", help="Of image files; repeat for more. Default: 1-5; arrays have all."),
    ] = None,
    constants: Annotated[Constants | None, typer.Option(help="Default: those of the layout.")] = None,
    seed: Annotated[int, typer.Option(help="Of the random draws.")] = 0,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes. Default: the number of cores.")] = None,
    as_json: Json = False,
) -> None:
    """Make a CIFAR-C or ImageNet-C style set from clean images.

    Images in arrays (CIFAR) become `<corruption>.npy` and `labels.npy`; image files become
    `<corruption>/<severity>/<class>/<file>.JPEG`. Stopped at any moment, the same command continues.
    """
    from ..corruptions.make import SEVERITIES, make_set

    shown, aside = consoles()
    names = tuple(only) if only else TYPES
    names += VALIDATION if validation else ()
    data = clean_images(clean)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bar = Progress("corrupted images", *columns, console=aside, transient=True, disable=not aside.is_interactive)
    with bar:
        task = bar.add_task("", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        chosen: Any = constants.value if constants else None
        levels = tuple(severity or SEVERITIES)
        plan = make_set(data, out, names, levels, constants=chosen, seed=seed, workers=workers, progress=show)
    card = plan.card()
    if as_json:
        print_json({"out": str(out), **card})
        return
    frost = f", frost from {card['frost']}" if "frost" in card else ""
    shown.print(
        f"{out}: {plan.samples} images × {len(plan.corruptions)} corruptions × {len(plan.severities)} severities "
        f"({plan.constants} constants{frost})",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
