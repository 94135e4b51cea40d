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

from ..errors import DataError, InputError, install
from ..files import digest, fingerprint

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


READABLE = 10**9
"""Bytes of image files that a fingerprint reads; beyond, it takes their names and sizes."""
MOST_CLASSES = 100_000
"""ImageNet-21k has 21,841. A larger label is a mistake, such as an identifier; the class names would fill memory."""


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
        given = np.asarray(labels)
        if given.size and given.dtype.kind not in "iub":
            raise DataError(f"{name}: expected integers as labels, but got {given.dtype}.")
        self.labels: Labels = given.astype(np.int64)
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

    def fingerprint(self) -> str:
        """Return 16 hex digits that change when the images or labels do; wherever the files lie."""
        return fingerprint(self.labels, "/".join(self.classes), *self._identity())

    def _identity(self) -> Sequence[npt.NDArray[Any] | str]:
        """Return what makes these images these images."""
        raise NotImplementedError

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

    def _identity(self) -> Sequence[npt.NDArray[Any] | str]:
        return [self.images]


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

    Attributes:
        root: the folder that was read, where it was one.
    """

    root: Path | None = None

    def __init__(
        self,
        name: str,
        paths: Sequence[Path],
        labels: npt.ArrayLike,
        classes: Sequence[str],
        *,
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

    def _identity(self) -> Sequence[npt.NDArray[Any] | str]:
        """The bytes of the files; where they are too many to be read each time, their names and sizes."""
        try:
            sizes = [path.stat().st_size for path in self.paths]
            if sum(sizes) > READABLE:
                files = [f"{path.name} {size}" for path, size in zip(self.paths, sizes, strict=True)]
            else:
                files = [digest(path.read_bytes()) for path in self.paths]
        except FileNotFoundError as error:
            raise DataError(f"Expected an image at {error.filename}, but there is none.") from None
        return [f"{self.size} {self.resize}", *files]


def read_image(path: Path, size: int | None, resize: int = 0) -> Images:
    """Return one RGB image file, uint8 (H, W, 3), scaled and cut to a square as `FileSet` says (None: unchanged)."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(f"Image files need Pillow: {install('data')}.") from error
    try:
        with Image.open(path) as file:
            deep = file.mode == "F" or file.mode.startswith("I")
            picture = file.copy() if deep else file.convert("RGB")
    except FileNotFoundError:
        raise DataError(f"Expected an image at {path}, but there is none.") from None
    except Exception as error:  # Pillow raises many kinds
        raise DataError(f"{path} is not a readable image ({error}); get it again.") from None
    if deep:
        picture = Image.fromarray(_eight_bits(np.asarray(picture), path)).convert("RGB")
    return np.asarray(picture if size is None else square(picture, size, resize))


def square(picture: Any, size: int, resize: int) -> Any:
    """Return a Pillow image with its shorter side scaled to `resize`, and the square of `size` in its middle."""
    from PIL import Image

    if picture.size == (size, size):
        return picture
    scale = resize / min(picture.size)
    width, height = (max(round(side * scale), size) for side in picture.size)
    left, top = (width - size) // 2, (height - size) // 2
    return picture.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + size, top + size))


def _eight_bits(grey: npt.NDArray[Any], path: Path) -> Images:
    """Return grey values of 16 bits, or floats from 0 to 1, as 0 to 255; Pillow would cut off what is above 255."""
    top = 65535 if np.issubdtype(grey.dtype, np.integer) else 1
    if not (grey.min() >= 0 and grey.max() <= top):  # also where there is a NaN
        raise DataError(
            f"{path}: expected grey values from 0 to {top} ({grey.dtype}), but they go from {grey.min():g} to "
            f"{grey.max():g}; save it with 8 bits a channel."
        )
    return np.rint(grey * (255 / top)).astype(np.uint8)
