"""The command, as a user runs it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from delta_tta.adapt import RECOMMENDED
from delta_tta.cli.commands import app


def run(*arguments, code=0):
    result = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"}).invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result


@pytest.mark.slow
def test_the_demo_shows_the_papers_point(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = run("demo", "--json", "--images", "600", "--workers", "0")
    cells = {(r["method"], r["stream"].split()[0].rstrip(",")): r for r in json.loads(shown.stdout)}
    score = {key: 100 * r["class_mean_accuracy"] for key, r in cells.items()}
    assert len(cells) == 20
    for method in ("bn", "tent"):
        assert score[method, "IS+CB"] > score["source", "IS+CB"] + 10
        assert score[method, "DS+CB"] < score["source", "DS+CB"], "normalising by the batch ruins dependent streams"
    for method in ("tent+delta", RECOMMENDED):
        for stream in ("DS+CB", "IS+CI", "DS+CI"):
            assert score[method, stream] > score["source", stream] + 10
            assert score[method, stream] > score[method, "IS+CB"] - 10
    for stream in ("DS+CB", "DS+CI"):
        assert score[RECOMMENDED, stream] > score["tent+delta", stream] + 5
    assert (tmp_path / "delta-tta-demo.png").stat().st_size > 20_000
    page = (tmp_path / "delta-tta-demo.html").read_text(encoding="utf-8")
    found = json.loads(re.search(r'type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1])["exhibits"]
    rows = ["source", "bn", "tent", "tent+delta", RECOMMENDED]
    assert [row["label"] for row in next(one for one in found if one["id"].startswith("overview"))["rows"]] == rows
    for figure in (one for one in found if one["id"] in ("stream", "predictions")):
        assert all([line["label"] for line in panel["series"]] == rows for panel in figure["panels"])
    assert shown.stderr.splitlines()[-2:] == [
        "Accuracy over the stream: delta-tta-demo.png",
        "The page: delta-tta-demo.html",
    ]


def test_compare_prints_a_table_and_writes_markdown(tmp_path):
    shown = run(
        "compare", "source", "bn", "--scenario", "DS+CB (rho=0.5)", "--corruption", "fog", "-s", "3", "-b", "200",
        "--workers", "0",  # several may finish in any order
        "--markdown", str(tmp_path / "table.md"),
    )  # fmt: skip
    assert "DS+CB (ρ=0.5)" in shown.stdout
    assert "fog 3 (cifar constants)" in shown.stdout
    assert "2/2 bn on fog 3, DS+CB (ρ=0.5), seed 2020, B=200" in shown.stderr, "progress, where there is no terminal"
    assert (tmp_path / "table.md").read_text().startswith("| | DS+CB (ρ=0.5) |")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "tnet"], "Did you mean 'tent'"),
        (["compare", "tent", "--model", "resnet21-cifar10"], "Did you mean 'resnet20-cifar10'"),
        (["compare", "tent", "--clean", "nowhere"], "Expected CIFAR at nowhere"),
        (["compare", "tent", "--scenario", "DS+CB"], "DS+CB needs `rho` (ρ), greater than 0, such as rho=0.1."),
        (["compare", "tent", "--scenario", "IS+CB, seed 3"], "Expected a scenario without its seed"),
        (["compare", "tent", "--corruption", "fogg"], "Did you mean 'fog'"),
        (["corrupt", "out", "--only", "fogg"], "Did you mean 'fog'"),
        (["export", "resnet20-cifar10", "out.onnx", "--method", "tent"], "Expected a method with anchored or source"),
        (["demo", "--severity", "9"], "from 1 to 5, but got 9"),
        (["demo", "--picture", "demo.pdf"], "A picture is written as .png or .svg, and 'demo.pdf' is neither."),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_code_2(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments, code=2)
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_corrupt_makes_a_set_of_the_embedded_images(tmp_path):
    out = tmp_path / "out"
    shown = run("corrupt", str(out), "--only", "contrast", "--workers", "1")
    assert "2000 images × 1 corruptions × 5 severities (cifar constants)" in shown.stdout
    assert {p.name for p in out.iterdir()} == {"contrast.npy", "labels.npy", "corruptions.json"}


@pytest.mark.slow
def test_export_writes_a_model_that_adapts(tmp_path):
    from delta_tta.edge import EdgeModel

    out = tmp_path / "model.onnx"
    shown = json.loads(run("export", "resnet20-cifar10", str(out), "--method", "anchored", "--json").stdout)
    assert (shown["method"], shown["bytes"]) == ("anchored", out.stat().st_size)
    assert EdgeModel(out)(np.zeros((9, 3, 32, 32), np.float32)).shape == (9, 10)


def test_methods_are_listed():
    shown = run("methods").stdout
    assert all(word in shown for word in ("tent", "+delta", "eata", "lame", "cotta", "memo", "tta", "+sample-drop"))
    assert "ent-w" in json.loads(run("methods", "--json").stdout)


def test_without_its_packages_the_command_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; from delta_tta.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "pip install 'delta-tta[cli]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_core_needs_torch_and_numpy_only():
    blocked = "cv2", "PIL", "safetensors", "typer", "rich", "matplotlib", "torchvision", "timm"
    code = (
        f"import sys; [sys.modules.__setitem__(name, None) for name in {blocked}]; "
        "import delta_tta, delta_tta.experiments, delta_tta.report"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_tune_tries_every_combination_and_names_the_best(tmp_path):
    asked = (
        "tune", "tent+delta", "--grid", "alpha=0.1,0.9", "--grid", "lr=0.001,1", "--images", "80", "-c", "fog",
        "-b", "16", "--scenario", "DS+CB,rho=0.1", "--workers", "0", "--store", str(tmp_path / "t.db"),
    )  # fmt: skip
    found = json.loads(run(*asked, "--json").stdout)
    assert found["scenarios"] == ["DS+CB (ρ=0.1)"]
    assert [trial["mean"] for trial in found["trials"]] == sorted((t["mean"] for t in found["trials"]), reverse=True)
    settings = [trial["settings"] for trial in found["trials"]]
    assert sorted((s["alpha"], s["lr"]) for s in settings) == [(0.1, 0.001), (0.1, 1), (0.9, 0.001), (0.9, 1)]
    assert found["trials"][0]["mean"] > found["trials"][-1]["mean"]
    best = ", ".join(f"{name}={value}" for name, value in settings[0].items())
    assert found["best"] == f'delta_tta.adapt(model, "tent+delta", "cifar10-c", {best})'
    shown = run(*asked, "--quiet").stdout.splitlines()  # from the store
    assert f"Best: {found['best']}" in shown[-2:]
    tied = sum(trial["tied"] for trial in found["trials"]) - 1
    assert (f"Not clearly: {tied} of the other 3" in shown[-1]) == (tied > 0)
    assert "name=value" in run("tune", "--grid", "alpha", code=2).stderr
