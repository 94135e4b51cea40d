"""Whole corrupted sets from clean images, in the official layouts, in parallel, and resumable at any moment.

CIFAR-C style: `<corruption>.npy`, uint8 (5 · N, 32, 32, 3), severities one after another, and `labels.npy`.
ImageNet-C style: `<corruption>/<severity>/<class>/<file>.JPEG`.

Every file appears complete or not at all (written aside, then renamed), so that what is there need not be done again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from ..data.sets import ArraySet, FileSet, ImageSet
from ..errors import DataError, SettingError
from ..files import UNFINISHED, digest
from . import describe
from .constants import TYPES, ConstantSet
from .layouts import cifar_jobs, imagenet_jobs, join_severities, write_array
from .parallel import in_parallel
from .plan import CARD, SEVERITIES, Plan, claim

__all__ = ["CARD", "SEVERITIES", "Plan", "make_set"]


def make_set(
    data: ImageSet,
    out: str | Path,
    corruptions: Sequence[str] = TYPES,
    severities: Sequence[int] = SEVERITIES,
    *,
    constants: ConstantSet | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Write the corrupted copies of a set below `out`: arrays as CIFAR-C, image files as ImageNet-C.

    Killed at any moment and called again with the same arguments, it continues where it stopped.

    Args:
        data: the clean images.
        out: the folder to write; made if need be.
        corruptions: which types.
        severities: which severities; the CIFAR-C layout needs all five.
        constants: "cifar" or "imagenet"; None takes that of the layout.
        seed: of the random draws.
        workers: processes; None takes the number of cores.
        progress: called with (corrupted images done, of how many), once at the start with what was there already.
    """
    layout: Literal["cifar", "imagenet"] = "imagenet" if isinstance(data, FileSet) else "cifar"
    if not isinstance(data, FileSet | ArraySet):
        raise DataError(f"Expected clean images in files or in an array, but got {type(data).__name__}.")
    if layout == "cifar" and tuple(severities) != SEVERITIES:
        raise SettingError(
            f"The CIFAR-C layout holds severities 1 to 5 in one file, but got {tuple(severities)}; leave them out."
        )
    kinds = constants or layout
    for name in corruptions:
        for severity in severities:
            describe(name, severity, kinds)
    sides = (data.size, data.resize) if isinstance(data, FileSet) else None
    plan = Plan(
        layout=layout,
        source=data.name,
        digest=_digest(data),
        samples=len(data),
        corruptions=tuple(corruptions),
        severities=tuple(severities),
        constants=kinds,
        seed=seed,
        size=sides,
    )
    place = Path(out)
    if isinstance(data, FileSet):
        _refuse_nested(data, place)
    place.mkdir(parents=True, exist_ok=True)
    claim(place, plan)
    jobs = cifar_jobs(data, place, plan) if isinstance(data, ArraySet) else imagenet_jobs(data, place, plan)
    total = len(data) * len(corruptions) * len(severities)
    todo = list(jobs)
    done = total - sum(size for size, _, _ in todo)
    if progress is not None:
        progress(done, total)
    for size in in_parallel(todo, workers or os.cpu_count() or 1):
        done += size
        if progress is not None:
            progress(done, total)
    if isinstance(data, ArraySet):
        for name in corruptions:
            join_severities(place, name)
        kind = np.uint8 if len(data.classes) <= 256 else np.int64
        write_array(place / "labels.npy", np.tile(data.labels.astype(kind), len(SEVERITIES)))
        (place / ".clean.npy").unlink(missing_ok=True)
    _sweep(place)
    return plan


def _digest(data: ArraySet | FileSet) -> str:
    """Return what tells one source from another: the pixels of an array, the names and sizes of files.

    Names begin at the folder of the classes: that it was called by another path, or moved, changes nothing.
    """
    if isinstance(data, ArraySet):
        return digest(np.ascontiguousarray(data.images).tobytes(), 16)
    root = data.root or os.path.commonpath([os.path.abspath(path.parent) for path in data.paths])
    files = [f"{os.path.relpath(path, root)} {_size(path)}" for path in data.paths]
    return digest("\n".join(files), 16)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        raise DataError(f"Expected an image at {path}, but there is none.") from None


def _refuse_nested(data: FileSet, place: Path) -> None:
    """Refuse to write where the next run would read, and the other way round."""
    out = place.resolve()
    if data.root is not None and out.is_relative_to(data.root.resolve()):
        raise DataError(f"Expected a folder outside of the clean images in {data.root}, but got {place} to write.")
    if any(parent.resolve().is_relative_to(out) for parent in {path.parent for path in data.paths}):
        raise DataError(f"Expected clean images outside of {place}, which is to be written, but they lie in it.")


def _sweep(place: Path) -> None:
    """Remove what processes that are no more left half-written."""
    for file in place.rglob(".*.tmp"):
        match = UNFINISHED.fullmatch(file.name)
        if match and not _alive(int(match[1])):
            file.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
