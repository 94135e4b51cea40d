"""CIFAR in all its layouts; damaged and hostile files."""

import pickle

import numpy as np
import pytest
from PIL import Image

from delta_tta import data
from delta_tta.errors import DataError, SettingError

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


@pytest.mark.parametrize(("name", "classes"), [("cifar-10-batches-py", 10), ("cifar-100-python", 100)])
def test_python_pickles_are_read_from_their_folder_or_the_one_above(tmp_path, name, classes):
    write_pickles(tmp_path / name, classes)
    for root in (tmp_path, tmp_path / name):
        test = data.cifar(root)
        assert (test.take(range(20)) == IMAGES).all()
        assert (test.labels == LABELS).all()
        assert test.classes[3] == "class 3"
        assert test.name == f"CIFAR-{classes}"
    assert len(data.cifar(tmp_path, "train")) == (100 if classes == 10 else 20)


def test_an_npz_file_is_read_from_its_path_or_its_folder(tmp_path):
    np.savez(tmp_path / "my_test.npz", images=IMAGES, labels=LABELS)
    for root in (tmp_path, tmp_path / "my_test.npz"):
        assert (data.cifar(root).take([3, 1]) == IMAGES[[3, 1]]).all()
    np.savez(tmp_path / "named.npz", images=IMAGES, labels=LABELS, classes=np.array([f"c{i}" for i in range(10)]))
    assert data.cifar(tmp_path / "named.npz").classes[2] == "c2"


def test_png_folders_are_read(tmp_path):
    for i in range(20):
        place = tmp_path / "test" / "abcdefghij"[LABELS[i]]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(IMAGES[i]).save(place / f"{i:02d}.png")
    found = data.cifar(tmp_path)
    assert found.labels.tolist() == sorted(LABELS.tolist())
    assert (found.take([2]) == IMAGES[[1]]).all()


def test_damaged_and_missing_files_say_what_was_expected(tmp_path):
    with pytest.raises(DataError, match="found no such place"):
        data.cifar(tmp_path / "nowhere")
    with pytest.raises(DataError, match="found none of them"):
        data.cifar(tmp_path)
    write_pickles(tmp_path / "cifar-10-batches-py", 10)
    whole = (tmp_path / "cifar-10-batches-py" / "test_batch").read_bytes()
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="not an intact CIFAR python file"):
        data.cifar(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "test_batch").unlink()
    with pytest.raises(DataError, match=r"Expected the CIFAR file .*test_batch"):
        data.cifar(tmp_path)
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(DataError, match=r"broken\.npz is not an intact \.npz file"):
        data.cifar(tmp_path / "broken.npz")
    np.savez(tmp_path / "other.npz", x=IMAGES)
    with pytest.raises(DataError, match=r"`images` and `labels` in .* found \['x'\]"):
        data.cifar(tmp_path / "other.npz")
    with pytest.raises(SettingError, match="one of"):
        data.cifar(tmp_path, "validation")


@pytest.fixture
def official(tmp_path):
    blocks = DRAW.integers(0, 256, (5 * 20, 32, 32, 3), dtype=np.uint8)
    np.save(tmp_path / "fog.npy", blocks)
    np.save(tmp_path / "labels.npy", np.tile(LABELS, 5).astype(np.uint8))
    return tmp_path, blocks


def test_a_severity_is_its_fifth_of_the_mapped_file(official):
    root, blocks = official
    for severity in range(1, 6):
        found = data.cifar_c(root, "fog", severity)
        assert (found.take(range(20)) == blocks[20 * (severity - 1) :][:20]).all()
        assert (found.labels == LABELS).all()
    assert isinstance(found.images, np.memmap)
    assert found.describe() == {"data": "CIFAR-10-C, fog 5", "samples": 20, "classes": 10}


def test_cifar_c_says_what_is_missing_or_damaged_and_how_to_get_it(official):
    root, blocks = official
    with pytest.raises(DataError, match=r"snow\.npy, but there is none.*Zenodo.*delta-tta corrupt"):
        data.cifar_c(root, "snow")
    with pytest.raises(SettingError, match="Did you mean 'fog'"):
        data.cifar_c(root, "fogg")
    with pytest.raises(SettingError, match="severity"):
        data.cifar_c(root, "fog", 6)
    whole = (root / "fog.npy").read_bytes()
    (root / "fog.npy").write_bytes(whole[:1000])
    with pytest.raises(DataError, match="not an intact"):
        data.cifar_c(root, "fog")
    np.save(root / "fog.npy", blocks[:99])
    with pytest.raises(DataError, match=r"5 · N, 32, 32, 3"):
        data.cifar_c(root, "fog")
    np.save(root / "fog.npy", blocks)
    np.save(root / "labels.npy", LABELS)
    with pytest.raises(DataError, match="expected 100 labels, but got 20"):
        data.cifar_c(root, "fog")


@pytest.mark.parametrize(("label", "told"), [(4_000_000_000, "4000000000"), (-1, "-1")])
def test_a_label_that_no_class_can_have_is_refused_before_memory_is_full(tmp_path, label, told):
    np.savez(tmp_path / "test.npz", images=IMAGES, labels=np.array([*LABELS[:-1], label]))
    with pytest.raises(DataError, match=f"expected labels from 0 to 99,999, but that of image 19 is {told}"):
        data.cifar(tmp_path)


@pytest.mark.parametrize("label", [3.5, "cat", [1, 2]])
def test_labels_that_are_no_integers_are_refused(tmp_path, label):
    rows = IMAGES.reshape(20, 3072)
    (tmp_path / "test_batch").write_bytes(pickle.dumps({"data": rows, "labels": [*LABELS[:-1].tolist(), label]}))
    (tmp_path / "batches.meta").write_bytes(pickle.dumps({}))
    with pytest.raises(DataError, match="as many integer labels in"):
        data.cifar(tmp_path)
    with pytest.raises(DataError, match="expected integers as labels, but got float64"):
        data.ArraySet("x", IMAGES[:2], [0, 0.5], "ab")
