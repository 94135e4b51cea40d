"""Sets made from other sets: corrupted, joined, fewer images, copies in memory or on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from .. import corruptions
from ..corruptions.constants import ConstantSet
from ..errors import DataError, InputError
from ..files import write_whole
from .sets import ArraySet, Images, ImageSet


class Corrupted(ImageSet):
    """Another set, corrupted when it is read; the same image always gets the same corruption.

    Args:
        base: the clean set.
        corruption: see `delta_tta.corruptions`.
        severity: 1 to 5.
        constants: "cifar" or "imagenet"; None takes CIFAR's for images of at most 64 pixels a side.
        seed: of the random draws.
    """

    def __init__(
        self, base: ImageSet, corruption: str, severity: int = 5, constants: ConstantSet | None = None, seed: int = 0
    ) -> None:
        side = max(base.take([0]).shape[1:3])
        self._constants: ConstantSet = constants or ("cifar" if side <= 64 else "imagenet")
        self._what = corruptions.describe(corruption, severity, self._constants)  # refuses wrong names here
        super().__init__(f"{base.name}, {self._what}", base.labels, base.classes, base.outputs)
        self.base, self.corruption, self.severity, self.seed = base, corruption, severity, seed

    def take(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> Images:
        """Return the images at these places, corrupted."""
        images = self.base.take(indices)
        places = np.asarray(indices, dtype=np.int64)
        return corruptions.corrupt(images, self.corruption, self.severity, self._constants, self.seed, index=places)

    def _identity(self) -> Sequence[npt.NDArray[Any] | str]:
        return [self.base.fingerprint(), self._what, f"{self.seed} {corruptions.VERSION}"]

    def describe(self) -> dict[str, Any]:
        """Return what a result must say about its data."""
        made = {"corruption": self._what, "corruption seed": self.seed, "made": "on the fly"}
        return {**super().describe(), **made}


class Concat(ImageSet):
    """Several sets of the same classes, one after another: what a stream over several domains leads through."""

    def __init__(self, sets: Sequence[ImageSet]) -> None:
        if not sets or any((s.classes, s.outputs) != (sets[0].classes, sets[0].outputs) for s in sets):
            raise DataError("Expected one or more sets of the same classes to join.")
        name = "; ".join(s.name for s in sets)
        super().__init__(name, np.concatenate([s.labels for s in sets]), sets[0].classes, sets[0].outputs)
        self.sets = tuple(sets)
        self._ends = np.cumsum([len(s) for s in sets])

    def take(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> Images:
        """Return the images at these places."""
        places = np.asarray(indices, dtype=np.int64)
        which = np.searchsorted(self._ends, places, side="right")
        found: list[Images | None] = [None] * len(places)
        for number in np.unique(which):
            here = np.flatnonzero(which == number)
            images = self.sets[number].take(places[here] - (self._ends[number] - len(self.sets[number])))
            for place, image in zip(here, images, strict=True):
                found[place] = image
        return np.stack([image for image in found if image is not None])

    def _identity(self) -> Sequence[npt.NDArray[Any] | str]:
        return [one.fingerprint() for one in self.sets]


class Subset(ImageSet):
    """The first images of each class of another set, about `count` in all, in the order of that set."""

    def __init__(self, base: ImageSet, count: int) -> None:
        if not len(base.classes) <= count <= len(base):
            raise InputError(
                f"Expected from {len(base.classes)} (one a class) to {len(base)} of the images of {base.name}, "
                f"but got {count}."
            )
        each = count // len(base.classes)
        rank = np.zeros(len(base), dtype=np.int64)  # how many of its class come before it
        for label in range(len(base.classes)):
            own = base.labels == label
            rank[own] = np.arange(own.sum())
        self.base, self.places = base, np.flatnonzero(rank < each)
        name = f"{base.name} ({len(self.places):,} of them: the first {each} of each class)"
        super().__init__(name, base.labels[self.places], base.classes, base.outputs)

    def take(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> Images:
        """Return the images at these places."""
        return self.base.take(self.places[np.asarray(indices, dtype=np.int64)])

    def _identity(self) -> Sequence[npt.NDArray[Any] | str]:
        return [self.base.fingerprint(), self.places]


def in_memory(data: ImageSet) -> ArraySet:
    """Return a copy whose images are all in memory: worthwhile where many methods run over one small set."""
    copy = ArraySet(data.name, data.take(np.arange(len(data))), data.labels, data.classes)
    copy.outputs = data.outputs
    copy.describe = data.describe  # type: ignore[method-assign]  # a copy is about the same data
    return copy


CHUNK = 1000
"""Images made at a time."""


def _fill(file: IO[bytes], data: ImageSet) -> None:
    """Write the array as np.save would, but not through a memory map: there a full disk is the end of the process."""
    head = {"descr": "|u1", "fortran_order": False, "shape": (len(data), *data.take([0]).shape[1:])}
    np.lib.format.write_array_header_1_0(file, head)
    for start in range(0, len(data), CHUNK):
        file.write(data.take(np.arange(start, min(start + CHUNK, len(data)))).tobytes())


def on_disk(data: ImageSet, folder: Path) -> ArraySet:
    """Return a copy whose images are a memory-mapped file in `folder`, shared by all processes; made where missing.

    Its name is the set's fingerprint, and it is complete or not there at all.
    """
    path = folder / f"{data.fingerprint()}.npy"
    if not path.is_file():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()  # before any image is made
        except OSError as error:
            raise OSError(
                f"Images cannot be kept in {folder} ({error.strerror}); choose another folder with --cache or "
                "$DELTA_TTA_CACHE."
            ) from None
        write_whole(path, lambda file: _fill(file, data))
    try:
        images = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is damaged ({error}); delete it, and it will be made again.") from None
    copy = ArraySet(data.name, images, data.labels, data.classes)
    copy.outputs = data.outputs
    copy.describe, copy.fingerprint = data.describe, data.fingerprint  # type: ignore[method-assign]  # as above
    return copy
