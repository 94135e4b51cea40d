"""The files of corrupted sets, as pieces of work: in the layout of CIFAR-C and in that of ImageNet-C."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..data.sets import ArraySet, FileSet, read_image
from ..errors import DataError
from ..files import write_whole
from . import corrupt
from .constants import ConstantSet
from .parallel import Job
from .plan import SEVERITIES, Plan

QUALITY = 85
"""Of the JPEG files of ImageNet-C."""
FILES_AT_ONCE = 8
"""Image files in one piece of work."""


def cifar_jobs(data: ArraySet, place: Path, plan: Plan) -> Iterator[Job]:
    """Yield what is missing of a set in the layout of CIFAR-C; its parts are joined later."""
    source = place / ".clean.npy"
    if not source.exists():
        write_array(source, np.asarray(data.images))
    for name in plan.corruptions:
        if not (place / f"{name}.npy").exists():
            for severity in plan.severities:
                part = place / f".{name}-{severity}.npy"
                if not part.exists():
                    yield plan.samples, _cifar_block, (source, part, name, severity, plan.constants, plan.seed)


def _cifar_block(source: Path, part: Path, name: str, severity: int, constants: ConstantSet, seed: int) -> None:
    images = np.load(source, mmap_mode="r")
    write_array(part, corrupt(np.asarray(images), name, severity, constants, seed, index=range(len(images))))


def join_severities(place: Path, name: str) -> None:
    """Lay the five severities one after another into the official file."""
    parts = [place / f".{name}-{severity}.npy" for severity in SEVERITIES]
    if not (place / f"{name}.npy").exists():
        write_array(place / f"{name}.npy", np.concatenate([np.load(part) for part in parts]))
    for part in parts:
        part.unlink(missing_ok=True)


def imagenet_jobs(data: FileSet, place: Path, plan: Plan) -> Iterator[Job]:
    """Yield what is missing of a set in the layout of ImageNet-C."""
    variants = [(name, severity) for name in plan.corruptions for severity in plan.severities]
    targets = _targets(data)
    for start in range(0, len(data), FILES_AT_ONCE):
        work = []
        for i in range(start, min(start + FILES_AT_ONCE, len(data))):
            missing = [v for v in variants if not (place / v[0] / str(v[1]) / targets[i]).exists()]
            if missing:
                work.append((i, data.paths[i], targets[i], missing))
        if work:
            size = sum(len(missing) for *_, missing in work)
            yield size, _imagenet_files, (place, work, data.size, data.resize, plan.constants, plan.seed)


def _targets(data: FileSet) -> list[str]:
    """Return `<class>/<file>.JPEG` for each image, and refuse two images of one name."""
    for name in data.classes:
        if name in ("", ".", "..") or re.search(r"[/\\\0]", name):
            raise DataError(f"{data.name}: the class {name!r} cannot be the name of a folder.")
    targets = [f"{data.classes[k]}/{path.stem}.JPEG" for k, path in zip(data.labels, data.paths, strict=True)]
    if len(set(targets)) < len(targets):
        twice = Counter(targets).most_common(1)[0][0]
        raise DataError(f"{data.name}: two images would both be written as {twice}; give them different names.")
    return targets


def _imagenet_files(place: Path, work: list[Any], size: int, resize: int, constants: ConstantSet, seed: int) -> None:
    from PIL import Image

    for index, path, target, variants in work:
        clean = read_image(path, size, resize)
        for name, severity in variants:
            picture = Image.fromarray(corrupt(clean, name, severity, constants, seed, index=[index]))
            final = place / name / str(severity) / target
            final.parent.mkdir(parents=True, exist_ok=True)
            fill = partial(picture.save, format="JPEG", quality=QUALITY, optimize=True)
            write_whole(final, fill, wait_for_folder=False)


def write_array(path: Path, array: np.ndarray[Any, Any]) -> None:
    """Write a .npy file, whole or not at all."""
    write_whole(path, lambda file: np.save(file, array))
