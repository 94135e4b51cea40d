"""Whole corrupted sets from clean images, in the official layouts, in parallel, and resumable at any moment.

CIFAR-C style: `<corruption>.npy`, uint8 (5 · N, 32, 32, 3), severities one after another, and `labels.npy`.
ImageNet-C style: `<corruption>/<severity>/<class>/<file>.JPEG`.

Every file appears complete or not at all (written aside, then renamed), so that what is there need not be done again.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .. import __version__
from ..data.sets import ArraySet, FileSet, ImageSet, read_image
from ..errors import DataError, SettingError
from ..files import UNFINISHED, digest, write_whole
from . import corrupt, describe, frost_source
from .constants import TYPES, ConstantSet

CARD = "corruptions.json"
QUALITY = 85
"""Of the JPEG files of ImageNet-C."""
SEVERITIES = (1, 2, 3, 4, 5)
FILES_AT_ONCE = 8
"""Image files in one piece of work."""


@dataclass(frozen=True)
class Plan:
    """What is to be made; kept beside the result, so that a second run with other parameters is refused."""

    layout: Literal["cifar", "imagenet"]
    source: str
    digest: str
    samples: int
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    constants: ConstantSet
    seed: int
    size: tuple[int, int] | None

    def card(self) -> dict[str, Any]:
        """Return the plan for the record, with what else determines the bytes."""
        frost = {"frost": frost_source()} if "frost" in self.corruptions else {}
        return {**json.loads(json.dumps(asdict(self))), **frost, "delta-tta": __version__}


def make_set(
    data: ImageSet,
    out: str | Path,
    corruptions: Sequence[str] = TYPES,
    severities: Sequence[int] = SEVERITIES,
    constants: ConstantSet | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Write the corrupted copies of a set below `out`: arrays as CIFAR-C, image files as ImageNet-C.

    Killed at any moment and called again with the same arguments, it goes on where it stopped.

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
    plan = Plan(layout, data.name, _digest(data), len(data), tuple(corruptions), tuple(severities), kinds, seed, sides)
    place = Path(out)
    if isinstance(data, FileSet):
        _refuse_nested(data, place)
    place.mkdir(parents=True, exist_ok=True)
    _claim(place, plan)
    jobs = _cifar_jobs(data, place, plan) if isinstance(data, ArraySet) else _imagenet_jobs(data, place, plan)
    total = len(data) * len(corruptions) * len(severities)
    todo = list(jobs)
    done = total - sum(size for size, _, _ in todo)
    if progress is not None:
        progress(done, total)
    for size in _in_parallel(todo, workers or os.cpu_count() or 1):
        done += size
        if progress is not None:
            progress(done, total)
    if isinstance(data, ArraySet):
        for name in corruptions:
            _join(place, name)
        kind = np.uint8 if len(data.classes) <= 256 else np.int64
        _write_array(place / "labels.npy", np.tile(data.labels.astype(kind), len(SEVERITIES)))
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


def _claim(place: Path, plan: Plan) -> None:
    """Write the card, or check that the one that is there says the same."""
    card, path = plan.card(), place / CARD
    if path.exists():
        there = _read_card(path)
        # More corruptions may join later, frost among them; the name is for the record; all else must be the same.
        was = {key: there.get(key) for key in card if key in there or key != "frost"}
        differs = [key for key in was if key not in ("corruptions", "source") and was[key] != card[key]]
        if differs:
            words = ", ".join(f"{key} {was[key]!r} (now {card[key]!r})" for key in differs)
            raise DataError(f"{place} holds a set made with {words}. Write to another folder.")
        card = {**there, **card, "corruptions": sorted({*there["corruptions"], *card["corruptions"]})}
    elif any(not UNFINISHED.fullmatch(file.name) for file in place.iterdir()):
        raise DataError(f"Expected an empty folder, or one this command began, but {place} has other files in it.")
    write_whole(path, lambda file: file.write((json.dumps(card, indent=1) + "\n").encode()))


def _read_card(path: Path) -> dict[str, Any]:
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        names = card["corruptions"]
        if isinstance(card, dict) and isinstance(names, list) and all(isinstance(name, str) for name in names):
            return card
    except (ValueError, TypeError, KeyError):
        pass
    raise DataError(f"{path} is damaged; remove it if the files beside it are not needed.")


Job = tuple[int, Callable[..., None], tuple[Any, ...]]
"""(corrupted images it makes, function, arguments)"""


def _cifar_jobs(data: ArraySet, place: Path, plan: Plan) -> Iterator[Job]:
    source = place / ".clean.npy"
    if not source.exists():
        _write_array(source, np.asarray(data.images))
    for name in plan.corruptions:
        if not (place / f"{name}.npy").exists():
            for severity in plan.severities:
                part = place / f".{name}-{severity}.npy"
                if not part.exists():
                    yield plan.samples, _cifar_block, (source, part, name, severity, plan.constants, plan.seed)


def _cifar_block(source: Path, part: Path, name: str, severity: int, constants: ConstantSet, seed: int) -> None:
    images = np.load(source, mmap_mode="r")
    _write_array(part, corrupt(np.asarray(images), name, severity, constants, seed, index=range(len(images))))


def _join(place: Path, name: str) -> None:
    """Lay the five severities one after another into the official file."""
    parts = [place / f".{name}-{severity}.npy" for severity in SEVERITIES]
    if not (place / f"{name}.npy").exists():
        _write_array(place / f"{name}.npy", np.concatenate([np.load(part) for part in parts]))
    for part in parts:
        part.unlink(missing_ok=True)


def _imagenet_jobs(data: FileSet, place: Path, plan: Plan) -> Iterator[Job]:
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


def _in_parallel(jobs: Sequence[Job], workers: int) -> Iterator[int]:
    """Run the jobs in processes; yield the size of each as it is done."""
    if workers == 1 or len(jobs) <= 1:
        for size, function, arguments in jobs:
            function(*arguments)
            yield size
        return
    # Spawned, not forked: torch and OpenCV have threads that do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), context, _one_thread) as pool:
        waiting = {pool.submit(function, *arguments): size for size, function, arguments in jobs}
        try:
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    future.result()
                    yield waiting.pop(future)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _one_thread() -> None:
    import cv2

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the master decides
    cv2.setNumThreads(1)  # the processes share the cores already


def _write_array(path: Path, array: np.ndarray[Any, Any]) -> None:
    write_whole(path, lambda file: np.save(file, array))
