"""A network of one's own that does not say how it wants its inputs: --mean and --std, or `mean` and `std` in a file."""

import json

import pytest
from typer.testing import CliRunner

from delta_tta.cli.commands import app
from delta_tta.experiments import Store
from laboratory import place

SMALL = ["--scenario", "IS+CB", "-b", "10", "-c", "contrast", "--workers", "0", "--json"]
SCALE = ["--mean", "0.5", "0.4", "0.3", "--std", "0.25", "0.25", "0.2"]
SAID = "mean (0.5, 0.4, 0.3), std (0.25, 0.25, 0.2)"


def run(*arguments, code=0):
    result = CliRunner(env={"COLUMNS": "160"}).invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def silent(tmp_path, monkeypatch):
    """A place with a network that says nothing about its inputs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELTA_TTA_CACHE", str(tmp_path / "cache"))
    where = place(tmp_path / "place")
    network = tmp_path / "place" / "network.py"
    network.write_text(network.read_text().replace("        self.normalisation = HALF\n", ""))
    return where


def test_compare_run_and_tune_take_mean_and_std(silent):
    for command in (
        ["compare", "source", "--clean", silent.path, "--model", silent.model],
        ["run", "-m", "source", "--data", "cifar", "--path", silent.path, "--model", silent.model],
        ["tune", "tent", "--grid", "lr=0.01", "--data", "cifar", "--path", silent.path, "--model", silent.model],
    ):
        said = run(*command, *SMALL, code=2).stderr
        assert "Net does not say how its inputs are normalised" in said
        assert "--mean and --std" in said
        assert "both `mean` and `std`" in run(*command, *SMALL, *SCALE[:4], code=2).stderr
        found = json.loads(run(*command, *SMALL, *SCALE).stdout)
        if command[0] != "tune":
            assert found[0]["about"]["normalisation"] == f"{SAID} (given)"
    with Store("delta-tta.db") as store:
        kept = [(cell.place, result.about["normalisation"]) for _, cell, result in store.results()]
    assert len(kept) == 2  # the source of `tune` is that of `run`
    assert {(where.mean, where.std) for where, _ in kept} == {((0.5, 0.4, 0.3), (0.25, 0.25, 0.2))}


def test_a_file_says_it_likewise_and_another_scale_is_another_result(silent, tmp_path):
    def experiment(**changes):
        usual = {"methods": ["source"], "scenarios": ["IS+CB"], "corruptions": ["contrast"], "data": "cifar"}
        lines = [f"{name} = {json.dumps(value)}" for name, value in {**usual, **changes}.items()]
        (tmp_path / "e.toml").write_text("\n".join([*lines, f"path = '{silent.path}'", f"model = '{silent.model}'"]))
        return ["run", "e.toml", "--workers", "0"]

    run(*experiment(mean=[0.5, 0.4, 0.3], std=[0.25, 0.25, 0.2]))
    shown = run(*experiment(mean=[0, 0, 0], std=[1, 1, 1])).stdout
    assert "mean (0.0, 0.0, 0.0), std (1.0, 1.0, 1.0)" in shown
    with Store("delta-tta.db") as store:
        assert len({result.about["normalisation"] for _, _, result in store.results()}) == len(store) == 2
    assert "`mean` to be three numbers, but got '0.5'" in run(*experiment(mean="0.5", std=[1, 1, 1]), code=2).stderr
