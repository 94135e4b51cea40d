"""Whole corrupted sets: official layouts, resumed after kill -9, nothing lost on a full disk."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from delta_tta import data
from delta_tta.corruptions.make import make_set
from delta_tta.errors import DataError, SettingError

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


SCRIPT = """
import sys, numpy as np
from delta_tta import data
from delta_tta.corruptions.make import make_set
if __name__ == "__main__":
    images = np.load(sys.argv[1])
    clean = data.ArraySet("noise", images, np.arange(len(images)) % 10, "abcdefghij")
    names = ["zoom_blur", "glass_blur", "fog"]
    make_set(clean, sys.argv[2], names, workers=2, progress=lambda *step: print(*step, flush=True))
"""


@pytest.mark.slow
def test_after_kill_9_it_goes_on_and_ends_with_the_same_bytes(tmp_path):
    images = np.tile(IMAGES, (20, 1, 1, 1))
    np.save(tmp_path / "clean.npy", images)
    (tmp_path / "run.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "run.py"), str(tmp_path / "clean.npy")]
    run = subprocess.Popen([*command, str(tmp_path / "out")], stdout=subprocess.PIPE, text=True, start_new_session=True)
    for line in run.stdout:
        if int(line.split()[0]) >= 1200:  # two of fifteen blocks are done
            break
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    run.stdout.close()
    assert not (tmp_path / "out" / "fog.npy").exists()
    again = subprocess.run([*command, str(tmp_path / "out")], capture_output=True, text=True, check=True)
    assert int(again.stdout.split()[0]) >= 1200, "what was done is not done again"
    clean = data.ArraySet("noise", images, np.arange(600) % 10, "abcdefghij")
    make_set(clean, tmp_path / "whole", ["zoom_blur", "glass_blur", "fog"], workers=1)
    for name in ("zoom_blur.npy", "glass_blur.npy", "fog.npy", "labels.npy"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert {p.name for p in (tmp_path / "out").iterdir()} == {p.name for p in (tmp_path / "whole").iterdir()}


def test_a_full_disk_is_an_error_and_what_was_there_stays_whole(tmp_path, clean):
    make_set(clean, tmp_path / "out", ["fog"], workers=1)
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").glob("*.npy")}
    code = (
        "import resource, signal, sys, numpy as np; from delta_tta import data; "
        "from delta_tta.corruptions.make import make_set; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)); "
        "clean = data.ArraySet('noise', np.load(sys.argv[1]), np.arange(30) % 10, 'abcdefghij'); "
        "make_set(clean, sys.argv[2], ['fog', 'snow'], workers=1)"
    )
    np.save(tmp_path / "clean.npy", IMAGES)
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "clean.npy"), str(tmp_path / "out")], capture_output=True
    )
    assert run.returncode != 0
    assert b"OSError" in run.stderr
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").glob("*.npy")} == before
    make_set(clean, tmp_path / "out", ["fog", "snow"], workers=1)
    assert data.cifar_c(tmp_path / "out", "snow", 1).take([0]).shape == (1, 32, 32, 3)


def test_the_same_folder_by_another_path_is_the_same(tmp_path, files, monkeypatch):
    make_set(files, tmp_path / "out", ["fog"], [1], workers=1)
    before = (tmp_path / "out" / "fog" / "1" / "a" / "0.JPEG").stat().st_mtime_ns
    (tmp_path / "link").symlink_to(tmp_path / "clean")
    for here, path, name in (
        (".", "clean", "clean"),
        ("clean", ".", "clean"),
        ("clean/a", "..", "clean"),
        ("out", "../clean/", "clean"),
        (".", "link", "link"),
    ):
        monkeypatch.chdir(tmp_path / here)
        again = data.folder(path, size=32)
        assert again.name == name
        make_set(again, tmp_path / "out", ["fog"], [1], workers=1)
    assert (tmp_path / "out" / "fog" / "1" / "a" / "0.JPEG").stat().st_mtime_ns == before
    other = next((tmp_path / "clean" / "a").iterdir())
    other.write_bytes(other.read_bytes() + b"more")
    with pytest.raises(DataError, match="holds a set made with digest"):
        make_set(data.folder(tmp_path / "clean", size=32), tmp_path / "out", ["fog"], [1], workers=1)


def test_the_set_and_the_clean_images_do_not_lie_in_each_other(tmp_path, files, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for out in ("clean/sub", "clean", tmp_path / "clean" / "a"):
        with pytest.raises(DataError, match=r"outside of the clean images in .*clean, but got"):
            make_set(data.folder("clean", size=32), out, ["fog"], [1], workers=1)
    monkeypatch.chdir(tmp_path / "clean")
    with pytest.raises(DataError, match=r"Expected clean images outside of \.\., which is to be written"):
        make_set(data.folder(".", size=32), "..", ["fog"], [1], workers=1)
    assert sorted(tmp_path.rglob("*")) == before


def test_wrong_arguments_are_refused_before_anything_is_written(tmp_path, clean, files):
    with pytest.raises(SettingError, match="Did you mean 'fog'"):
        make_set(clean, tmp_path / "out", ["fogg"])
    with pytest.raises(SettingError, match="severities 1 to 5 in one file"):
        make_set(clean, tmp_path / "out", ["fog"], [5])
    with pytest.raises(DataError, match="in files or in an array"):
        make_set(data.Corrupted(clean, "fog"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    twins = data.FileSet("twins", [files.paths[0], files.paths[0]], [0, 0], "a")
    with pytest.raises(DataError, match=r"both be written as a/0\.JPEG"):
        make_set(twins, tmp_path / "twins", ["fog"])
