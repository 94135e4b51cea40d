"""The files of corrupted sets."""

import os

import numpy as np
import pytest
from PIL import Image

from delta_tta import data
from delta_tta.corruptions import corrupt
from delta_tta.corruptions.make import make_set
from delta_tta.errors import DataError

DRAW = np.random.default_rng(0)
IMAGES = DRAW.integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)


@pytest.fixture
def clean():
    return data.ArraySet("noise", IMAGES, np.arange(30) % 10, "abcdefghij")


@pytest.fixture
def files(tmp_path):
    for i in range(12):
        place = tmp_path / "clean" / "ab"[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(DRAW.integers(0, 256, (40, 48, 3), dtype=np.uint8)).save(place / f"{i}.png")
    return data.folder(tmp_path / "clean", size=32)


def test_arrays_become_the_layout_of_cifar_c(tmp_path, clean):
    steps = []
    make_set(clean, tmp_path / "out", ["fog", "saturate"], workers=1, progress=lambda *step: steps.append(step))
    assert sorted(os.listdir(tmp_path / "out")) == ["corruptions.json", "fog.npy", "labels.npy", "saturate.npy"]
    assert steps[0] == (0, 300)
    assert steps[-1] == (300, 300)
    found = data.cifar_c(tmp_path / "out", "fog", 4)
    assert (found.take(range(30)) == corrupt(IMAGES, "fog", 4, index=range(30))).all()
    assert (found.labels == clean.labels).all()
    assert (data.Corrupted(clean, "fog", 4).take(range(30)) == found.take(range(30))).all()


def test_files_become_the_layout_of_imagenet_c_in_any_number_of_processes(tmp_path, files):
    make_set(files, tmp_path / "one", ["snow"], [2, 3], workers=1)
    make_set(files, tmp_path / "two", ["snow"], [2, 3], workers=2)
    made = sorted(str(p.relative_to(tmp_path / "one")) for p in (tmp_path / "one").rglob("*.JPEG"))
    assert len(made) == 24
    assert made[0] == "snow/2/a/0.JPEG"
    for name in made:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    wanted = Image.fromarray(corrupt(files.take([0]), "snow", 2, "imagenet", index=[0])[0])
    wanted.save(tmp_path / "wanted.JPEG", quality=85, optimize=True)
    assert (tmp_path / "one" / made[0]).read_bytes() == (tmp_path / "wanted.JPEG").read_bytes()
    assert len(data.imagenet_c(tmp_path / "one", "snow", 3)) == 12


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "..", "", "a\\b"])
def test_a_class_name_cannot_lead_out_of_the_folder(tmp_path, files, name):
    evil = data.FileSet("evil", files.paths[:1], [0], [name])
    with pytest.raises(DataError, match="cannot be the name of a folder"):
        make_set(evil, tmp_path / "deep" / "set", ["fog"], workers=1)
