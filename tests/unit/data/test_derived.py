"""Sets made from others: fewer images, fingerprints, copies on disk."""

import shutil
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import laboratory
from delta_tta import data
from delta_tta.errors import DataError, InputError
from delta_tta.paper import benchmark as benchmark


def noise(labels, classes="abcd", seed=0):
    draw = np.random.default_rng(seed)
    images = draw.integers(0, 256, (len(labels), 8, 8, 3), dtype=np.uint8)
    return data.ArraySet("noise", images, labels, classes)


@pytest.fixture
def clean():
    return noise(np.arange(40) % 4)


@given(st.permutations([0] * 9 + [1] * 9 + [2] * 9), st.integers(3, 27))
def test_fewer_are_the_first_of_each_class_in_the_order_they_had(labels, count):
    base = noise(labels, "abc")
    few = data.Subset(base, count)
    each = count // 3
    assert np.bincount(few.labels).tolist() == [each] * 3
    assert (np.diff(few.places) > 0).all()
    for label in range(3):
        assert few.places[few.labels == label].tolist() == np.flatnonzero(base.labels == label)[:each].tolist()
    places = np.random.default_rng(0).permutation(len(few))
    assert (few.take(places) == base.images[few.places[places]]).all()
    assert (few.labels == base.labels[few.places]).all()


def test_a_class_with_too_few_gives_all_it_has():
    few = data.Subset(noise([0, 1, 1, 1, 1, 1], "ab"), 6)
    assert few.labels.tolist() == [0, 1, 1, 1]


def test_fewer_must_be_one_of_each_class_and_not_more_than_there_are(clean):
    assert len(data.Subset(clean, 4)) == 4
    assert len(data.Subset(clean, 40)) == 40
    for count in (0, 3, 41):
        with pytest.raises(InputError, match=rf"from 4 \(one a class\) to 40 of the images of noise, but got {count}"):
            data.Subset(clean, count)


def test_fewer_says_which_it_is_and_keeps_the_outputs(clean):
    clean.outputs = (5, 6, 7, 8)
    few = data.Subset(clean, 10)
    assert few.name == f"noise ({len(few)} of them: the first 2 of each class)"
    assert few.describe()["samples"] == 8
    assert few.outputs == (5, 6, 7, 8)
    noisy = data.Corrupted(few, "contrast", 3)
    assert (noisy.take([3]) == data.Corrupted(clean, "contrast", 3).take([few.places[3]])).all()


def test_a_fingerprint_changes_with_a_pixel_a_label_the_order_and_the_classes(clean):
    def changed(images=clean.images, labels=clean.labels, classes="abcd"):
        return data.ArraySet("noise", images, labels, classes).fingerprint()

    pixel, label = clean.images.copy(), clean.labels.copy()
    pixel[30, 2, 5, 0] ^= 1
    label[7] = 0
    marks = [
        changed(),
        changed(images=pixel),
        changed(labels=label),
        changed(images=clean.images[::-1]),
        changed(clean.images[::-1], clean.labels[::-1]),
        changed(classes="abce"),
        changed(classes="abcde"),
    ]
    assert len(set(marks)) == len(marks)
    assert changed() == clean.fingerprint() == changed(images=np.asfortranarray(clean.images))
    assert data.ArraySet("another name", clean.images, clean.labels, "abcd").fingerprint() == clean.fingerprint()
    assert all(len(mark) == 16 for mark in marks)


def test_a_fingerprint_of_a_derived_set_is_of_what_it_is_made_of(clean):
    other = noise(clean.labels, seed=1)
    derived = {
        "corrupted": lambda s: data.Corrupted(s, "contrast", 3),
        "harder": lambda s: data.Corrupted(s, "contrast", 4),
        "otherwise": lambda s: data.Corrupted(s, "fog", 3),
        "another seed": lambda s: data.Corrupted(s, "contrast", 3, seed=1),
        "large": lambda s: data.Corrupted(s, "contrast", 3, "imagenet"),
        "joined": lambda s: data.Concat([s, s]),
        "fewer": lambda s: data.Subset(s, 8),
        "fewest": lambda s: data.Subset(s, 4),
    }
    marks = [make(one).fingerprint() for make in derived.values() for one in (clean, other)]
    assert len({*marks, clean.fingerprint()}) == len(marks) + 1
    assert data.Subset(clean, 9).fingerprint() == data.Subset(clean, 8).fingerprint()  # the same images


def test_a_fingerprint_of_files_does_not_change_with_their_folder(tmp_path):
    for label in ("cat", "dog"):
        (tmp_path / "a" / label).mkdir(parents=True)
        for number in range(3):
            Image.fromarray(np.full((8, 8, 3), 40 * number, np.uint8)).save(tmp_path / "a" / label / f"{number}.png")
    mark = data.folder(tmp_path / "a", size=None).fingerprint()
    shutil.move(tmp_path / "a", tmp_path / "b")
    assert data.folder(tmp_path / "b", size=None).fingerprint() == mark
    assert data.folder(tmp_path / "b", size=16).fingerprint() != mark
    (tmp_path / "b" / "dog" / "2.png").rename(tmp_path / "b" / "cat" / "3.png")
    assert data.folder(tmp_path / "b", size=None).fingerprint() != mark


def test_a_copy_on_disk_is_mapped_and_is_about_the_same_data(clean, tmp_path):
    noisy = data.Corrupted(clean, "gaussian_noise", 2)
    noisy.outputs = (5, 6, 7, 8)
    copy = data.on_disk(noisy, tmp_path / "cache" / "deeper")
    assert isinstance(copy.images, np.memmap)
    assert not copy.images.flags.writeable
    assert (copy.take([31, 4]) == noisy.take([31, 4])).all()
    assert (copy.labels == noisy.labels).all()
    assert (copy.outputs, copy.name, copy.describe()) == (noisy.outputs, noisy.name, noisy.describe())
    assert copy.fingerprint() == noisy.fingerprint()
    (file,) = (tmp_path / "cache" / "deeper").iterdir()
    assert file.name == f"{noisy.fingerprint()}.npy"


def test_a_copy_is_made_once(clean, tmp_path):
    data.on_disk(clean, tmp_path)

    class Untouched(data.ArraySet):
        def take(self, indices):
            raise AssertionError("it was read again")

    again = data.on_disk(Untouched("noise", clean.images, clean.labels, "abcd"), tmp_path)
    assert (again.take([5]) == clean.images[[5]]).all()


@pytest.mark.parametrize("left", [0, 60, 2000])
def test_a_damaged_copy_is_named(clean, tmp_path, left):
    data.on_disk(clean, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:left])
    with pytest.raises(DataError, match=rf"{file.name} is damaged \(.*\); delete it, and it will be made again"):
        data.on_disk(clean, tmp_path)


def test_what_fails_in_the_middle_leaves_nothing(clean, tmp_path):
    class Broken(data.ArraySet):
        def take(self, indices):
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        data.on_disk(Broken("noise", clean.images, clean.labels, "abcd"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_killed_in_the_middle_there_is_no_file_of_the_final_name(tmp_path):
    script = """
import sys
from pathlib import Path
from delta_tta import data
data.on_disk(data.Concat([data.Corrupted(data.demo(), "snow", 5)] * 20), Path(sys.argv[1]))
"""
    process = laboratory.python(script, tmp_path)
    laboratory.until(lambda: list(tmp_path.iterdir()), what="it to be written")
    process.kill()
    process.communicate()
    assert process.returncode == -9
    (part,) = tmp_path.iterdir()
    assert part.suffix == ".tmp"
    noisy = data.Corrupted(data.demo(), "snow", 5)
    copy = data.on_disk(noisy, tmp_path)
    assert (tmp_path / f"{noisy.fingerprint()}.npy").is_file()
    assert (copy.take([3, 1999]) == noisy.take([3, 1999])).all()


def test_two_threads_make_a_file_of_the_cache_at_once(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (3000, 32, 32, 3), dtype=np.uint8)
    base = data.ArraySet("noise", noise, np.arange(3000) % 4, "abcd")

    class Slow(data.ArraySet):
        def take(self, indices):
            time.sleep(0.05 * (threading.current_thread().name == "b"))
            return super().take(indices)

    errors = []

    def make():
        try:
            own = Slow("noise", base.images, base.labels, "abcd")
            assert (data.on_disk(own, tmp_path).take(np.arange(3000)) == base.images).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=make, name=name) for name in "ab"]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors
