"""delta-tta train."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import DataError
from .support import completion as completion
from .support.console import Json, consoles, print_json, say

if TYPE_CHECKING:
    from ..models.training import Progress as Step
    from ..models.training import Trained, Training

EXAMPLES = """
Examples:
  delta-tta train IMAGES --out mine.safetensors --val HELD_OUT        # a ResNet-18 from the beginning
  delta-tta train IMAGES --out mine.safetensors --weights published --lr 0.01 --epochs 10   # from ImageNet's
  delta-tta train COCO_CROPS --out ytbb.safetensors --classes ytbb21.txt   # the source model of YTBB-sub
  delta-tta train IMAGES --out small.safetensors --model resnet20 --size 32
"""


def train(
    folder: Annotated[Path, typer.Argument(help="Images to learn from, one sub-folder a class.")],
    out: Annotated[Path, typer.Option(help="The .safetensors file to write.")],
    model: Annotated[
        str, typer.Option(autocompletion=completion.model, help="See delta_tta.models.load.")
    ] = "torchvision:resnet18",
    weights: Annotated[
        str,
        typer.Option(
            autocompletion=completion.first_weights,
            help="Where to start: random; published (the model's own, such as ImageNet's: a download); a name such as "
            "IMAGENET1K_V1 or resnet20-cifar10; or a file. The last layer is new where the number of classes differs.",
        ),
    ] = "random",
    classes: Annotated[
        Path | None,
        typer.Option(
            help="Text file, a name a line: which sub-folders, in the order of the outputs. Default: all, by name."
        ),
    ] = None,
    val: Annotated[Path | None, typer.Option(help="Held-out images, in the same sub-folders.")] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Times that every image is seen.")] = 30,
    batch_size: Annotated[int, typer.Option("--batch-size", "-b", min=2, help="Images in a step.")] = 128,
    lr: Annotated[float, typer.Option(help="The greatest learning rate.")] = 0.1,
    decay: Annotated[float, typer.Option(help="Weight decay.")] = 5e-4,
    adjust: Annotated[
        float, typer.Option(help="Logit adjustment for imbalanced classes: τ; 1 as in its paper, 0 for none.")
    ] = 1.0,
    size: Annotated[
        int | None,
        typer.Option(min=8, help="Side of the images. Default: 224, or what small square images have."),
    ] = None,
    mean: Annotated[
        tuple[float, float, float] | None, typer.Option(help="Of the input channels, where the model does not say.")
    ] = None,
    std: Annotated[tuple[float, float, float] | None, typer.Option(help="Likewise.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the first weights, the order and the crops.")] = 0,
    minutes: Annotated[float, typer.Option(min=0, help="Between two saved states; one more is saved an epoch.")] = 5,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads that read images. Default: the number of cores.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a classifier on a folder of images, with logit adjustment where the classes are imbalanced.

    The file holds the weights and a card with the names of the classes; every command takes it as --weights. Stopped at
    any moment, the same command continues and ends with the same weights.
    """
    from .. import data
    from ..models.start import start
    from ..models.train import checkpoint_of
    from ..models.train import train as train_model
    from ..models.training import Training

    settings = Training(epochs, batch_size, lr, decay, adjust, seed)
    images = data.folder(folder, size, classes=_names(classes))
    held_out = None if val is None else data.folder(val, images.size, classes=images.classes)
    _left_out(folder, images.classes)
    named, new = start(model, weights, classes=len(images.classes), seed=seed, mean=mean, std=std)
    if new:
        say(f"The last layer is new, the others are from {weights}: {', '.join(new)}")
    try:
        with _shown(settings) as on_progress:
            trained = train_model(
                images, named, out, settings, val=held_out, minutes=minutes, workers=workers, on_progress=on_progress
            )
    except KeyboardInterrupt:
        if checkpoint_of(out).exists():
            say(f"The state is in {checkpoint_of(out)}; the same command continues.")
        raise
    _result(trained, settings, as_json)


def _names(file: Path | None) -> list[str] | None:
    if file is None:
        return None
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Expected a text file of class names at {file} ({error}).") from None
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise DataError(f"Expected class names in {file}, one a line, but it has none.")
    return names


def _left_out(folder: Path, classes: tuple[str, ...]) -> None:
    others = sorted(child.name for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    left = [name for name in others if name not in classes]
    if left:
        say(f"Left out, because --classes does not name them: {', '.join(left)}")


@contextmanager
def _shown(settings: Training) -> Iterator[Callable[[Step], None]]:
    """Show the training: a bar where the console can move its cursor, else a line an epoch; give what `train` calls."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = consoles()[1]
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), "{task.description}")
    began = time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not console.is_interactive) as bar:
        task = bar.add_task("", total=None)

        def on_progress(now: Step) -> None:
            rate = now.images / max(time.monotonic() - began, 1e-9)
            words = f"epoch {now.epoch}/{settings.epochs}: loss {now.loss:.3f}, {rate:,.0f} images/s"
            if now.class_mean_accuracy is not None:
                words += f", class mean {100 * now.class_mean_accuracy:.1f} %"
            done = (now.epoch - 1) * now.steps + now.step
            bar.update(task, total=settings.epochs * now.steps, completed=done, description=words)
            if now.step == now.steps and not console.is_interactive:
                say(words)

        yield on_progress


def _result(trained: Trained, settings: Training, as_json: bool) -> None:
    card = trained.card
    classes, counts = json.loads(card["classes"]), json.loads(card["images"])
    score = trained.class_mean_accuracy
    if as_json:
        about = {"architecture": card["architecture"], "classes": classes, "images": counts, "size": int(card["size"])}
        known = {"class_mean_accuracy": score, "before": trained.before}
        print_json({"out": str(trained.out), **about, **known, **asdict(settings), "trained_by": card["trained_by"]})
        return
    if trained.before:
        say("It was trained before; nothing was done.")
    accuracy = "" if score is None else f"; class mean {100 * score:.1f} % on the held-out images"
    consoles()[0].print(
        f"{trained.out}: {card['architecture']}, {len(classes)} classes, {sum(counts):,} images, "
        f"{settings.epochs} epochs{accuracy}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
