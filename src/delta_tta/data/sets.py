"""Image sets: labelled images that can be taken in any order, so that a stream can lead through them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from .. import corruptions
from ..corruptions.constants import ConstantSet
from ..errors import DataError, InputError

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


class ImageSet(Dataset[tuple[Tensor, int]]):
    """Labelled images; a torch `Dataset` of (uint8 image (3, H, W), label).

    Attributes:
        name: what it is, for the record.
        labels: the class of each image, (N,), from 0.
        classes: the names of the classes.
        outputs: which outputs of a 1000-class ImageNet model are these classes; None if they are not ImageNet's.
    """

    def __init__(
        self, name: str, labels: npt.ArrayLike, classes: Sequence[str], outputs: Sequence[int] | None = None
    ) -> None:
        self.name = name
        self.labels: Labels = np.asarray(labels, dtype=np.int64)
        self.classes = tuple(classes)
        self.outputs = tuple(outputs) if outputs is not None else None
        if not len(self.labels):
            raise DataError(f"{name} has no images.")
        if self.labels.min() < 0 or self.labels.max() >= len(self.classes):
            raise DataError(
                f"{name}: expected labels from 0 to {len(self.classes) - 1}, but they go from {self.labels.min()} to "
                f"{self.labels.max()}."
            )

    def take(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> Images:
        """Return the images at these places, uint8 (n, H, W, 3)."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.name} has {len(self)} images, but got index {index}.")
        return as_tensor(self.take([index % len(self)]))[0], int(self.labels[index])

    def batches(self, order: Sequence[int] | npt.NDArray[np.int64], size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (images uint8 (B, 3, H, W), labels (B,)) in this order, `size` at a time; the last may be smaller."""
        if size < 1:
            raise InputError(f"Expected a batch size of at least 1, but got {size}.")
        places = np.asarray(order, dtype=np.int64)
        for start in range(0, len(places), size):
            here = places[start : start + size]
            yield as_tensor(self.take(here)), torch.from_numpy(self.labels[here])

    def describe(self) -> dict[str, Any]:
        """Return what a result must say about its data."""
        return {"data": self.name, "samples": len(self), "classes": len(self.classes)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {len(self)} images, {len(self.classes)} classes)"


def as_tensor(images: Images) -> Tensor:
    """Return uint8 (n, H, W, 3) as a tensor (n, 3, H, W)."""
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


class ArraySet(ImageSet):
    """Images that lie in one array, in memory or memory-mapped, uint8 (N, H, W, 3)."""

    def __init__(self, name: str, images: Images, labels: npt.ArrayLike, classes: Sequence[str]) -> None:
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
            raise DataError(f"{name}: expected images uint8 (N, H, W, 3), but got {images.dtype} {images.shape}.")
        if len(images) != len(np.asarray(labels)):
            raise DataError(f"{name}: {len(images)} images, but {len(np.asarray(labels))} labels.")
        self.images = images
        super().__init__(name, labels, classes)

    def take(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> Images:
        """Return the images at these places."""
        return np.asarray(self.images[np.asarray(indices, dtype=np.int64)])


class FileSet(ImageSet):
    """Images that lie in files, one each; read when taken.

    Args:
        name: what it is, for the record.
        paths: the files.
        labels: the class of each file.
        classes: the names of the classes.
        size: side of the square that comes out. Larger images are scaled so that the shorter side is `resize`, and the
            centre is cut out; images that have the size already are left alone.
        resize: 8/7 of `size` (256 for 224) unless given.
        outputs: see `ImageSet`.
    """

    def __init__(
        self,
        name: str,
        paths: Sequence[Path],
        labels: npt.ArrayLike,
        classes: Sequence[str],
        size: int = 224,
        resize: int | None = None,
        outputs: Sequence[int] | None = None,
    ) -> None:
        super().__init__(name, labels, classes, outputs)
        self.paths = tuple(paths)
        self.size = size
        self.resize = resize if resize is not None else round(size * 8 / 7)

    def take(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> Images:
        """Return the images at these places."""
        return np.stack([read_image(self.paths[i], self.size, self.resize) for i in indices])


def read_image(path: Path, size: int | None, resize: int = 0) -> Images:
    """Return one RGB image file, uint8 (H, W, 3), scaled and cut to a square as `FileSet` says (None: as it is)."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("Image files need Pillow: pip install 'delta-tta[data]'.") from error
    try:
        with Image.open(path) as file:
            picture = file.convert("RGB")
    except FileNotFoundError:
        raise DataError(f"Expected an image at {path}, but there is none.") from None
    except Exception as error:  # Pillow raises many kinds
        raise DataError(f"{path} is not a readable image ({error}); get it again.") from None
    if size is not None and picture.size != (size, size):
        scale = resize / min(picture.size)
        width, height = (max(round(side * scale), size) for side in picture.size)
        left, top = (width - size) // 2, (height - size) // 2
        picture = picture.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + size, top + size))
    return np.asarray(picture)


class Corrupted(ImageSet):
    """Another set, corrupted as it is read; the same image always gets the same corruption.

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

    def describe(self) -> dict[str, Any]:
        """Return what a result must say about its data."""
        made = {"corruption": self._what, "corruption seed": self.seed, "made": "on the fly"}
        return {**super().describe(), **made}


class Joined(ImageSet):
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


def in_memory(data: ImageSet) -> ArraySet:
    """Return a copy whose images are all in memory: worthwhile where many methods run over one small set."""
    copy = ArraySet(data.name, data.take(np.arange(len(data))), data.labels, data.classes)
    copy.outputs = data.outputs
    copy.describe = data.describe  # type: ignore[method-assign]  # a copy is about the same data
    return copy
