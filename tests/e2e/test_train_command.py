"""`delta-tta train`, as a user runs it: imbalanced classes, a process that is killed, a disk that is full."""

import json
import os
import resource
import signal
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from delta_tta.cli.commands import app
from folders import write_images, write_network
from laboratory import until

MAIN = [sys.executable, "-W", "error", "-c", "from delta_tta.cli import main; main()"]


CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def run(*arguments, code=0):
    result = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"}).invoke(app, ["train", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def options(tmp_path):
    """A training of some milliseconds."""
    images = write_images(tmp_path / "images", {"ship": 9, "cat": 12, "dog": 7})
    return [images, "--model", write_network(tmp_path), "--epochs", "5", "-b", "7", "--lr", "0.05"]


@pytest.mark.slow
def test_logit_adjustment_helps_the_rare_classes(tmp_path):
    counts = {name: round(80 * 0.02 ** (k / 9)) for k, name in enumerate(CLASSES)}  # 80 airplanes, 2 trucks
    images = write_images(tmp_path / "images", counts)
    held_out = write_images(tmp_path / "held out", dict.fromkeys(CLASSES, 20), skip=180)
    score = {}
    for adjust in ("1", "0"):
        shown = run(
            images, "--val", held_out, "--out", tmp_path / f"{adjust}.safetensors", "--adjust", adjust, "--json",
            "--model", "resnet20", "--weights", "resnet20-cifar100", "--size", "24",
            "--epochs", "4", "-b", "32", "--lr", "0.02",
        )  # fmt: skip
        trained = json.loads(shown.stdout)
        score[adjust] = trained["class_mean_accuracy"]
        assert "The last layer is new, the others are from resnet20-cifar100: fc.weight, fc.bias" in shown.stderr
        assert "epoch 4/4: loss " in shown.stderr
        assert (trained["classes"], trained["images"], trained["size"]) == ([*CLASSES], [*counts.values()], 24)
    assert score["1"] > score["0"] + 0.05  # seeds 0 to 2: +11.5, +9.5, +9.5 points


@pytest.mark.slow
def test_a_process_that_is_killed_or_stopped_ends_with_the_same_bytes(options, tmp_path):
    out, state = tmp_path / "net.safetensors", tmp_path / "net.safetensors.resume"
    slow = tmp_path / "slow"
    slow.touch()
    for way, code in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
        moments = set()

        def saved_often(moments=moments):
            if state.exists():
                moments.add(state.stat().st_mtime_ns)
            return len(moments) > 3

        with subprocess.Popen(
            [*MAIN, "train", *map(str, options), "--out", out, "--minutes", "0"],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            until(saved_often, 300, "states to be saved")
            process.send_signal(way)
            said = process.communicate()[1].splitlines()
        assert process.returncode == code, said
        kept = torch.load(state, weights_only=True)
        assert 2 <= 4 * kept["epoch"] + kept["step"] < 20
        assert not out.exists()
    assert said[-2:] == [f"The state is in {state}; the same command continues.", "delta-tta: interrupted."]
    slow.unlink()
    run(*options, "--out", out)
    run(*options, "--out", tmp_path / "unbroken.safetensors")
    assert out.read_bytes() == (tmp_path / "unbroken.safetensors").read_bytes()
    assert not state.exists()
    assert "It was trained before; nothing was done." in run(*options, "--out", out).stderr


def test_a_state_that_is_cut_is_refused_in_a_sentence(options, tmp_path):
    out, state = tmp_path / "net.safetensors", tmp_path / "net.safetensors.resume"
    state.write_bytes(b"PK\x03\x04 and no more")
    (said,) = run(*options, "--out", out, code=2).stderr.splitlines()
    assert said.startswith(f"delta-tta: {state} is not an intact state of a training (")
    assert said.endswith("; remove it to begin anew.")


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_that_cannot_be_written_is_an_error_before_any_training(options, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))  # as a disk that is full
    try:
        shown = run(*options, "--out", folder / "net.safetensors", code=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "File too large" in shown.stderr
    assert "epoch" not in shown.stderr
    assert left_in(folder) == []
    folder.chmod(0o500)
    if os.getuid() == 0:
        folder = "/proc"  # not even root can make a file there
    shown = run(*options, "--out", f"{folder}/net.safetensors", code=1)
    assert "net.safetensors" in shown.stderr
    assert "epoch" not in shown.stderr


def test_a_disk_with_room_for_one_state_only_is_an_error_before_any_training(options, small_disk):
    room = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize
    (small_disk / "filler").write_bytes(b"x" * (room - 16384))  # a state has about 11 KB
    shown = run(*options, "--out", small_disk / "net.safetensors", code=1)
    assert "Expected room for " in shown.stderr
    assert "epoch" not in shown.stderr
    assert left_in(small_disk) == ["filler"]
