"""`delta-tta train`: classes, normalisation, and wrong usage."""

import json
import os

import pytest
from typer.testing import CliRunner

from delta_tta.cli.commands import app
from folders import write_images, write_network


def run(*arguments, code=0):
    result = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"}).invoke(app, ["train", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def options(tmp_path):
    """A training of some milliseconds."""
    images = write_images(tmp_path / "images", {"ship": 9, "cat": 12, "dog": 7})
    return [images, "--model", write_network(tmp_path), "--epochs", "5", "-b", "7", "--lr", "0.05"]


def test_a_list_of_classes_chooses_them_and_their_order(options, tmp_path):
    (tmp_path / "names.txt").write_text("ship\n\n cat \n")
    shown = run(*options, "--classes", tmp_path / "names.txt", "--out", tmp_path / "net.safetensors", "--json")
    trained = json.loads(shown.stdout)
    assert (trained["classes"], trained["images"]) == (["ship", "cat"], [9, 12])
    assert trained["class_mean_accuracy"] is None
    assert "Left out, because --classes does not name them: dog" in shown.stderr


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["nowhere"], "Expected a folder of images at nowhere"),
        (["images", "--classes", "nowhere.txt"], "Expected a text file of class names at nowhere.txt"),
        (["images", "--classes", "empty.txt"], "Expected class names in empty.txt, one a line, but it has none."),
        (["images", "--classes", "wrong.txt"], "sub-folder of images for the class 'shop'. Did you mean 'ship'?"),
        (["images", "--classes", "twice.txt"], "Expected different names as `classes`, but 'cat' is twice."),
        (["images", "--val", "images/cat"], "Expected a sub-folder of images/cat for the class 'cat'."),
        (["images", "--weights", "nowhere.pt"], "Expected weights at nowhere.pt"),
        (["images", "--model", "resnet200"], "Did you mean 'resnet20'?"),
        (["images", "--model", "net.py:silent"], "does not say how its inputs are normalised; give `mean` and `std`"),
        (["images", "--out", "net.pt"], "ends in .safetensors, but got net.pt"),
        (["images", "--lr", "0"], "Expected `lr` to be a number above 0"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(changes, words, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("empty", "\n"), ("wrong", "shop\ncat\n"), ("twice", "cat\ncat\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    out = [] if "--out" in changes else ["--out", "net.safetensors"]
    model = [] if "--model" in changes else options[1:3]
    (said,) = run(changes[0], *model, *out, *options[3:], *changes[1:], code=2).stderr.splitlines()
    assert words in said
    assert not [name for name in os.listdir() if name.startswith("net.safetensors")]


def test_a_normalisation_can_be_given(options, tmp_path):
    options[2] = options[2].replace(":make", ":silent")
    half = ["--mean", "0.5", "0.5", "0.5", "--std", "0.25", "0.25", "0.25"]
    assert "3 classes, 28 images, 5 epochs" in run(*options, *half, "--out", tmp_path / "net.safetensors").stdout
