"""What the commands share: which streams, and where clean images come from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import data
from ..bench.experiment import Kind
from . import completing

Scenarios = Annotated[
    list[str] | None,
    typer.Option(
        "--scenario",
        autocompletion=completing.scenario,
        help="Such as IS+CB, DS+CB,rho=0.1 or DS+CI,rho=0.5,pi=0.05; repeat for more.",
    ),
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
