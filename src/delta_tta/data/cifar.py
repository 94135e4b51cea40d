"""CIFAR-10 and -100 (Krizhevsky 2009), clean in any common layout, and CIFAR-10-C / CIFAR-100-C in the official one."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..corruptions.constants import TYPES, VALIDATION
from ..errors import DataError, SettingError, nearest
from .folders import folder
from .pickles import read_pickle
from .sets import MOST_CLASSES, ArraySet, ImageSet
from .sources import how_to_get

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def cifar(root: str | Path, split: Literal["test", "train"] = "test") -> ImageSet:
    """Return clean CIFAR-10 or -100, in whichever layout is found at `root`.

    Args:
        root: an .npz file (arrays `images` and `labels`, perhaps `classes`), or a folder with one of: python pickles
            (`cifar-10-batches-py` or `cifar-100-python`, inside or itself), a single `*test*.npz` / `*train*.npz`, or
            image files in one folder a class (below `test/` or `train/` if there is one).
        split: "test" or "train".
    """
    if split not in ("test", "train"):
        raise SettingError(f"Expected `split` to be one of ('test', 'train'), but got {split!r}.")
    path = Path(root)
    if path.is_file():
        return _npz(path)
    for place in (path, path / "cifar-10-batches-py", path / "cifar-100-python"):
        if (place / "batches.meta").is_file() or (place / "data_batch_1").is_file():
            return _pickled(place, ["test_batch"] if split == "test" else [f"data_batch_{i}" for i in range(1, 6)])
        if (place / "meta").is_file() or (place / split).is_file():
            return _pickled(place, [split])
    archives = sorted(path.glob(f"*{split}*.npz")) if path.is_dir() else []
    if len(archives) == 1:
        return _npz(archives[0])
    pictures = path / split if (path / split).is_dir() else path
    if pictures.is_dir() and any(child.is_dir() for child in pictures.iterdir()):
        return folder(pictures, size=32, name="CIFAR")
    found = f"{len(archives)} files *{split}*.npz" if archives else "none of them" if path.exists() else "no such place"
    raise DataError(
        f"Expected CIFAR at {path}: the python pickles, one *{split}*.npz, or a folder of images for each class; found "
        f"{found}. {how_to_get('cifar')}"
    )


def _npz(path: Path) -> ArraySet:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:  # numpy leaves a bad one open
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not an intact .npz file: {error}.") from None
    if not {"images", "labels"} <= set(arrays):
        raise DataError(f"Expected the arrays `images` and `labels` in {path}, but found {sorted(arrays)}.")
    labels = arrays["labels"]
    if labels.ndim != 1 or not len(labels) or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"Expected integer labels (N,) in {path}, but got {labels.dtype} {labels.shape}.")
    wrong = np.flatnonzero((labels < 0) | (labels >= MOST_CLASSES))
    if len(wrong):
        raise DataError(
            f"{path}: expected labels from 0 to {MOST_CLASSES - 1:,}, but that of image {wrong[0]} is "
            f"{labels[wrong[0]]}."
        )
    count = int(labels.max()) + 1
    named = [arrays[key] for key in ("classes", "names") if arrays.get(key, labels[:0]).shape == (count,)]
    classes = [str(name) for name in named[0]] if named else _names(count)
    return ArraySet(_title(count), arrays["images"], labels, classes)


def _pickled(place: Path, files: list[str]) -> ArraySet:
    images, labels = [], []
    for file in files:
        content = read_pickle(place / file)
        numbers = content.get("labels", content.get("fine_labels"))
        pixels = content.get("data")
        if not isinstance(pixels, np.ndarray) or pixels.shape != (_count(numbers), 3072):
            raise DataError(
                f"Expected `data` (N, 3072) and as many integer labels in {place / file}; it is damaged, get it again."
            )
        images.append(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels.append(np.asarray(numbers, dtype=np.int64))
    count = 10 if "batch" in files[0] else 100
    return ArraySet(_title(count), np.concatenate(images), np.concatenate(labels), _pickled_names(place, count))


def _count(values: Any) -> int | None:
    """Return how many integers there are; None if they are something else."""
    try:
        array = np.asarray(values)
    except ValueError:  # lists of unlike lengths
        return None
    return len(array) if array.ndim == 1 and np.issubdtype(array.dtype, np.integer) else None


def _pickled_names(place: Path, count: int) -> tuple[str, ...]:
    meta = place / ("batches.meta" if count == 10 else "meta")
    content: dict[str, Any] = read_pickle(meta) if meta.is_file() else {}
    names = content.get("label_names", content.get("fine_label_names"))
    return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names) if names else _names(count)


def cifar_c(root: str | Path, corruption: str, severity: int = 5) -> ArraySet:
    """Return one corruption at one severity of CIFAR-10-C or CIFAR-100-C; the file is memory-mapped, not read.

    Args:
        root: the folder with `<corruption>.npy` (severities 1 to 5 one after another) and `labels.npy`.
        corruption: one of the 15 types or the 4 validation types.
        severity: 1 to 5.
    """
    if corruption not in (*TYPES, *VALIDATION):
        raise SettingError(f"Unknown corruption {corruption!r}.{nearest(corruption, (*TYPES, *VALIDATION))}")
    if severity not in range(1, 6):
        raise SettingError(f"Expected `severity` to be an integer from 1 to 5, but got {severity!r}.")
    images, labels = (_mapped(Path(root) / f"{file}.npy") for file in (corruption, "labels"))
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or len(images) % 5 or labels.ndim != 1:
        raise DataError(
            f"Expected images uint8 (5 · N, 32, 32, 3) in {Path(root) / corruption}.npy and labels (5 · N,), but got "
            f"{images.dtype} {images.shape} and {labels.shape}."
        )
    count = len(images) // 5
    if len(labels) < severity * count:
        raise DataError(f"{Path(root) / 'labels.npy'}: expected {len(images)} labels, but got {len(labels)}.")
    here = slice((severity - 1) * count, severity * count)
    classes = 10 if labels.max() < 10 else 100
    return ArraySet(f"{_title(classes)}-C, {corruption} {severity}", images[here], labels[here], _names(classes))


def _mapped(path: Path) -> npt.NDArray[Any]:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]  # numpy's type of a mapped array
    except FileNotFoundError:
        raise DataError(f"Expected {path}, but there is none. {how_to_get('cifar-c')}") from None
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is not an intact .npy file: {error}. {how_to_get('cifar-c')}") from None


def _title(classes: int) -> str:
    return f"CIFAR-{classes}" if classes in (10, 100) else f"{classes} classes of CIFAR"


def _names(count: int) -> tuple[str, ...]:
    return CIFAR10_CLASSES if count == 10 else tuple(str(i) for i in range(count))
