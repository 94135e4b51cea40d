"""The paper's four benchmarks through the real command, down to a table: its layouts of data, its kinds of checkpoints.

The images are noise and the weights random, so the numbers mean nothing; that they are there, and where from, does.
"""

import csv
import json

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from delta_tta import streams
from delta_tta.cli.commands import app
from delta_tta.corruptions.constants import TYPES
from delta_tta.data.folders import imagenet_wnids
from delta_tta.models.cifar import CifarResNeXt
from nets import randomise_statistics
from vision import torchvision

pytestmark = pytest.mark.xdist_group("paper benchmarks")  # what they share is made once
QUICK = ["--samples", "1", "--workers", "0", "--json"]
DRAW = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELTA_TTA_CACHE", str(tmp_path / "cache"))


def reproduce(*arguments, code=0):
    result = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["reproduce", *map(str, arguments), *QUICK])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code == 0 else result.stderr


def noise(count, side=32):
    return DRAW.integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def jpeg(path, side=64):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise(1, side)[0]).save(path, "JPEG")


def numbers(table):
    """Row → what was measured; every number is there."""
    assert table["kind"] == "table"
    assert all(
        number is not None and number["runs"] == number["of"] for row in table["rows"] for number in row["numbers"]
    )
    return {row["label"]: [number["mean"] for number in row["numbers"]] for row in table["rows"]}


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    """CIFAR-100-C as published (one image a class), clean CIFAR-100, and a checkpoint as RobustBench has it."""
    root = tmp_path_factory.mktemp("cifar")
    (root / "CIFAR-100-C").mkdir()
    for name in TYPES:
        np.save(root / f"CIFAR-100-C/{name}.npy", noise(500))
    np.save(root / "CIFAR-100-C/labels.npy", np.tile(np.arange(100, dtype=np.uint8), 5))
    (root / "clean").mkdir()
    np.savez(root / "clean/test.npz", images=noise(100), labels=np.arange(100))
    torch.manual_seed(0)
    weights = randomise_statistics(CifarResNeXt(100)).state_dict()
    scale = {"mu": torch.zeros(1, 3, 1, 1), "sigma": torch.ones(1, 3, 1, 1)}
    torch.save({**{f"module.{name}": value for name, value in weights.items()}, **scale}, root / "robustbench.pt")
    return root


def test_cifar100_c(cifar):
    data = ["--data", cifar / "CIFAR-100-C", "--weights", cifar / "robustbench.pt"]
    (table,) = reproduce("table-13", "--on", "cifar100-c", *data)
    assert {len(row) for row in numbers(table).values()} == {8}
    (clean,) = reproduce("table-7", "--on", "cifar100-c", *data, "--clean", cifar / "clean")
    assert list(numbers(clean)) == ["Source", "BN adapt", "TENT", "TENT+DELTA", "Ent-W", "Ent-W+DELTA"]
    assert clean["rows"][0]["numbers"][0]["paper"] == 78.9
    assert "--clean PATH" in reproduce("table-7", "--on", "cifar100-c", *data, code=2)


def test_weights_of_the_users_own_on_cifar100(cifar):
    common = ["table-7", "--on", "cifar100", "--data", cifar / "clean"]
    (table,) = reproduce(*common, "--weights", cifar / "robustbench.pt")
    assert "resnext29 (robustbench.pt)" in table["description"]
    (embedded,) = reproduce(*common)
    assert "our EfficientNet-Lite0" in embedded["description"]
    assert numbers(table).keys() == numbers(embedded).keys()


@pytest.fixture(scope="module")
def resnet50(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "resnet50.pth"
    torch.save(torchvision.models.resnet50().state_dict(), path)
    return path


@pytest.mark.slow
def test_imagenet_c(tmp_path, resnet50):
    for wnid in imagenet_wnids()[:3]:
        for name in ("gaussian_noise", "shot_noise"):
            jpeg(tmp_path / f"ImageNet-C/{name}/5/{wnid}/ILSVRC2012_val_1.JPEG")
    data = ["--on", "imagenet-c", "--data", tmp_path / "ImageNet-C", "--weights", resnet50]
    (table,) = reproduce("table-13", *data)
    assert list(numbers(table)) == ["Gauss", "Shot"]
    assert table["rows"][0]["numbers"][0]["paper"] == 28.672


@pytest.mark.slow
def test_imagenet_r(tmp_path, resnet50):
    for number, wnid in enumerate(imagenet_wnids()[300:500]):
        jpeg(tmp_path / f"imagenet-r/{wnid}/{'sketch' if number % 2 else 'toy'}_0.jpg", side=16)
    common = ["--on", "imagenet-r", "--data", tmp_path / "imagenet-r", "--weights", resnet50]
    table, gallery = reproduce("table-8", "figure-6", *common)
    assert "Ent-W+DELTA" in numbers(table)
    assert [column["label"] for column in table["columns"]] == ["ImageNet-R"]
    assert [picture["label"] for picture in gallery["pictures"]] == ["Toy"]
    assert "no corruptions" in reproduce("table-5", *common, code=2)


def test_ytbb_sub(tmp_path):
    rows = []
    for number in range(42):  # 21 videos of two frames
        video = f"v{number // 2}"
        jpeg(tmp_path / f"frames/{video}/{number}.jpg", side=16)
        rows.append((f"frames/{video}/{number}.jpg", number // 2, video, number % 2))
    with (tmp_path / "ytbb.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label", "video", "time"), *rows])
    torch.manual_seed(0)
    torch.save({"state_dict": torchvision.models.resnet18(num_classes=21).state_dict()}, tmp_path / "resnet18.pt")
    data = ["--on", "ytbb-sub", "--data", tmp_path / "ytbb.csv", "--weights", tmp_path / "resnet18.pt"]
    table, first, second = reproduce("table-8", "figure-8", *data)
    assert [column["label"] for column in table["columns"]] == ["YTBB-sub"]
    assert {number["of"] for row in table["rows"] for number in row["numbers"]} == {4}  # orders of the videos
    assert numbers(table).keys() == {"Source", "BN adapt", "ETA", "TENT", "TENT+DELTA", "Ent-W", "Ent-W+DELTA"}
    assert (first["id"], second["id"]) == ("figure-8a", "figure-8b")


def test_videos_keep_their_frames_together():
    videos = ["a", "a", "b", "c", "c", "c"]
    made = [
        streams.stream([0, 1, 0, 1, 0, 1], "videos", seed=seed, groups=videos).indices.tolist() for seed in range(20)
    ]
    for order in made:
        assert sorted(order) == list(range(6))
        met = [videos[i] for i in order]
        assert len([i for i in range(1, 6) if met[i] != met[i - 1]]) == 2
        assert all(order.index(i) < order.index(j) for i, j in ((0, 1), (3, 4), (4, 5)))
    assert len(set(map(tuple, made))) == 6
    with pytest.raises(streams.StreamError, match="take 'natural'"):
        streams.stream([0, 1], "videos")
