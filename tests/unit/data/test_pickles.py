"""Python pickles of CIFAR: hostile ones, and arrays of anything but numbers."""

import os
import pickle

import numpy as np
import pytest

from delta_tta import data
from delta_tta.errors import DataError

DRAW = np.random.default_rng(0)
IMAGES = DRAW.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(20) % 10


def write_pickles(folder, classes):
    """As the official files: rows of 3072 values, channel by channel, keys as bytes."""
    folder.mkdir(parents=True)
    rows = IMAGES.transpose(0, 3, 1, 2).reshape(20, 3072)
    key, names, test = (
        (b"labels", b"label_names", "test_batch") if classes == 10 else (b"fine_labels", b"fine_label_names", "test")
    )
    for file in (
        ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", test)
        if classes == 10
        else ("train", test)
    ):
        (folder / file).write_bytes(pickle.dumps({b"data": rows, key: LABELS.tolist()}, protocol=2))
    meta = "batches.meta" if classes == 10 else "meta"
    (folder / meta).write_bytes(pickle.dumps({names: [f"class {i}".encode() for i in range(classes)]}, protocol=2))


class Hostile:
    def __reduce__(self):
        return os.system, ("touch it_ran",)


def test_a_hostile_pickle_is_refused_and_nothing_in_it_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_pickles(tmp_path / "cifar-10-batches-py", 10)
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps({b"data": Hostile()}))
    with pytest.raises(DataError, match=r"test_batch is not an intact CIFAR python file: it asks for posix\.system"):
        data.cifar(tmp_path)
    assert not (tmp_path / "it_ran").exists()


class Pointer:
    """An array of objects made of raw bytes: whoever looks at it follows a wild pointer."""

    def __reduce__(self):
        return np.ndarray, ((1,), "O", b"A" * 8)


class Objects:
    def __reduce__(self):
        return np.dtype, ("O8",)


@pytest.mark.parametrize(
    "content", [Pointer(), Objects(), np.array([object], dtype=object)], ids=["raw", "dtype", "array"]
)
def test_arrays_of_anything_but_numbers_are_refused(tmp_path, content):
    write_pickles(tmp_path / "cifar-10-batches-py", 10)
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps({b"data": content}, protocol=2))
    with pytest.raises(DataError, match="not an intact CIFAR python file"):
        data.cifar(tmp_path)
