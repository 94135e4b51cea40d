"""What the commands share: errors as one line, and where data comes from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console

from .. import data
from ..bench.experiment import Kind
from ..errors import DeltaError

WRONG = 2
"""Exit code for input that cannot be used, as for a wrong option."""
INTERRUPTED = 130


def consoles() -> tuple[Console, Console]:
    """Return (for results, for progress and errors); NO_COLOR and pipes are respected by rich."""
    return Console(), Console(stderr=True)


@contextmanager
def spoken_errors() -> Iterator[None]:
    """Turn errors made for the user into one line and an exit code."""
    try:
        yield
    except (DeltaError, ImportError) as error:
        typer.echo(f"delta-tta: {error}", err=True)
        raise typer.Exit(WRONG) from None
    except OSError as error:  # a full disk, a folder that may not be written
        typer.echo(f"delta-tta: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("delta-tta: interrupted.", err=True)
        raise typer.Exit(INTERRUPTED) from None


def clean_kind(place: Path | None) -> Kind:
    """Return what kind of clean images are at `place`: CIFAR in any layout, or a folder of images."""
    if place is None:
        return "demo"
    if place.is_dir():
        children = {child.name for child in place.iterdir()}
        arrays = any(name.endswith(".npz") for name in children)
        layouts = {"cifar-10-batches-py", "cifar-100-python", "batches.meta", "meta", "test_batch", "test", "train"}
        if not arrays and not children & layouts:
            return "folder"
    return "cifar"


def clean_images(place: Path | None) -> data.ImageSet:
    """Return the embedded default, or clean images at `place`."""
    kind = clean_kind(place)
    if place is None:
        return data.demo()
    return data.folder(place, size=None) if kind == "folder" else data.cifar(place)
