"""Images in folders, one a class: any set of your own, ImageNet-C, ImageNet-R."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from ..errors import DataError, nearest
from .sets import FileSet, read_image
from .sources import how_to_get

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif"})


@functools.cache
def imagenet_wnids() -> tuple[str, ...]:
    """Return the WordNet names of ImageNet's 1000 classes, in the order of every model's outputs."""
    return tuple(resources.files("delta_tta").joinpath("assets/imagenet_wnids.txt").read_text().split())


def folder(
    root: str | Path,
    size: int | None = 224,
    resize: int | None = None,
    name: str | None = None,
    classes: Sequence[str] | None = None,
) -> FileSet:
    """Return the images below `root`, one sub-folder a class, classes and files in the order of their names.

    `size` and `resize` as in `FileSet`; None leaves small square images (at most 64 pixels) as large as the first is.
    `classes` are the names of the sub-folders to read, in the order of the labels; others are left out. Where all of
    them are WordNet names of ImageNet, `outputs` says which outputs of an ImageNet model they are.
    """
    place, absolute = Path(root), Path(os.path.abspath(root))
    if not place.is_dir():
        raise DataError(
            f"Expected a folder of images at {place}, one sub-folder a class, but there is none. {how_to_get('folder')}"
        )
    there = sorted(child.name for child in place.iterdir() if child.is_dir() and not child.name.startswith("."))
    classes = there if classes is None else list(classes)
    if len(set(classes)) < len(classes):
        raise DataError(
            f"Expected different names as `classes`, but {Counter(classes).most_common(1)[0][0]!r} is twice."
        )
    unknown = next((label for label in classes if label not in there), None)
    if unknown is not None:
        raise DataError(f"Expected a sub-folder of {place} for the class {unknown!r}.{nearest(unknown, there)}")
    paths: list[Path] = []
    labels: list[int] = []
    kept: list[str] = []
    for label in classes:
        found = (file for file in (place / label).rglob("*") if file.suffix.lower() in SUFFIXES)
        files = sorted(file for file in found if not file.name.startswith("."))
        paths += files
        labels += [len(kept)] * len(files)
        kept += [label] if files else []
    if not paths:
        kinds = ", ".join(sorted(SUFFIXES))
        raise DataError(f"Expected images ({kinds}) in sub-folders of {place}, but found none. {how_to_get('folder')}")
    if kept != classes:  # left out, it would shift the numbers of the others
        missing = next(label for label in classes if label not in kept)
        raise DataError(f"{place}: the folder of class {missing!r} holds no images; fill it, or remove it.")
    if size is None:
        height, width, _ = read_image(paths[0], None).shape
        size = height if height == width <= 64 else 224
    known = {wnid: number for number, wnid in enumerate(imagenet_wnids())}
    outputs = [known[label] for label in kept] if all(label in known for label in kept) else None
    images = FileSet(name or absolute.name, paths, labels, kept, size=size, resize=resize, outputs=outputs)
    images.root = absolute
    return images


def imagenet_c(root: str | Path, corruption: str, severity: int = 5) -> FileSet:
    """Return one corruption at one severity of ImageNet-C (`<corruption>/<severity>/<wnid>/*.JPEG`)."""
    place = Path(root) / corruption / str(severity)
    if not place.is_dir():
        raise DataError(
            f"Expected the folder {place} with one sub-folder a WordNet name, but there is none. "
            f"{how_to_get('imagenet-c')}"
        )
    return folder(place, name=f"ImageNet-C, {corruption} {severity}")


def imagenet_r(root: str | Path) -> FileSet:
    """Return ImageNet-R (Hendrycks et al. 2021): 200 classes, `outputs` says which of the model's 1000 they are."""
    place = Path(root)
    if not place.is_dir():
        raise DataError(
            f"Expected ImageNet-R at {place}, one sub-folder a WordNet name, but there is no such folder. "
            f"{how_to_get('imagenet-r')}"
        )
    found = folder(place, name="ImageNet-R")
    if found.outputs is None or len(found.classes) != 200:
        raise DataError(
            f"Expected the 200 WordNet names of ImageNet-R as sub-folders of {place}, but found {len(found.classes)} "
            f"folders with images{'' if found.outputs else ', not all of them WordNet names of ImageNet'}."
        )
    return found
