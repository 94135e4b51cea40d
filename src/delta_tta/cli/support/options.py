"""What the commands share: which streams, and where clean images come from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ... import data
from ...experiments.place import Kind
from . import completion as completion

Scenarios = Annotated[
    list[str] | None,
    typer.Option(
        "--scenario",
        autocompletion=completion.scenario,
        help="Such as IS+CB, DS+CB,rho=0.1 or DS+CI,rho=0.5,pi=0.05; repeat for more.",
    ),
]
Severities = Annotated[list[int] | None, typer.Option("--severity", "-s", help="1 to 5, default 5; repeat for more.")]
BatchSizes = Annotated[list[int] | None, typer.Option("--batch-size", "-b", help="Default: 64; repeat for more.")]
Seeds = Annotated[list[int] | None, typer.Option("--seed", help="Of the streams; repeat for more.")]
DataKind = Annotated[
    str | None,
    typer.Option(
        "--data", autocompletion=completion.data, help="demo, cifar[-c], imagenet-c, imagenet-r, folder, video."
    ),
]
DataPath = Annotated[Path | None, typer.Option("--path", help="Where the images are.")]
Model = Annotated[
    str | None, typer.Option("--model", autocompletion=completion.model, help="See delta_tta.models.load.")
]
Weights = Annotated[Path | None, typer.Option("--weights", help="A .safetensors file or torch checkpoint.")]
Mean = Annotated[
    tuple[float, float, float] | None,
    typer.Option("--mean", help="Of the input channels, 0 to 1: three numbers. Default: as the model says."),
]
Std = Annotated[tuple[float, float, float] | None, typer.Option("--std", help="Likewise.")]
Preset = Annotated[
    str | None,
    typer.Option("--preset", autocompletion=completion.preset, help="The paper's settings for a data set."),
]


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


def read_value(text: str) -> Any:
    """Return the value of a setting as typed: numbers, booleans and none as such."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
