"""JSON, exit codes, wrong usage, and what commands say where data is missing."""

import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import delta_tta
from delta_tta.cli.commands import app
from laboratory import Held, place, until

MAIN = [sys.executable, "-c", "from delta_tta.cli import main; main()"]


def run(*arguments, code=0, **environment):
    result = CliRunner(env={"COLUMNS": "160", **environment}).invoke(app, list(arguments), prog_name="delta-tta")
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELTA_TTA_CACHE", str(tmp_path / "cache"))
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def small(tmp_path):
    """Options of `run` that take some milliseconds."""
    where = place(tmp_path / "place")
    options = ["--data", "cifar", "-c", "contrast", "-b", "10", "--scenario", "IS+CB", "--workers", "0"]
    return ["run", *options, "--path", where.path, "--model", where.model, "--store", "s.db"]


# completion


def typed(line):
    """Return the environment in which bash asks what can follow."""
    words = line.split(" ")
    return {"_DELTA_TTA_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    assert text.isascii()
    return json.loads(text, parse_constant=refuse)


def test_json_is_all_that_goes_to_the_standard_output(small, tmp_path):
    rows = strict(run(*small, "-m", "source", "-m", "bn", "--json").stdout)
    assert [(row["method"], row["cell"]["corruptions"], row["samples"]) for row in rows] == [
        (method, ["contrast"], 60) for method in ("source", "bn")
    ]
    path, model = small[small.index("--path") + 1], small[small.index("--model") + 1]
    images = ["--clean", path, "--model", model, "--corruption", "contrast"]
    same = ["--workers", "0", "--scenario", "IS+CB", "-b", "10", "--json"]
    compared = strict(run("compare", "source", "bn", *images, *same).stdout)
    assert [row["digest"] for row in compared] == [row["digest"] for row in rows]
    assert [row["accuracy"] for row in compared] == [row["accuracy"] for row in rows]
    run(*small[:-1], "other.db", "-m", "tent")
    changed = strict(run("compare", "s.db", "other.db", "--json").stdout)
    assert changed == {"cells": [], "only_before": 2, "only_after": 1, "mean": None, "error": None, "p": 1.0}
    (one, two) = strict(run("compare", "s.db", "s.db", "--json").stdout)["cells"]
    assert (one["points"], one["changed"], two["cell"]["method"]) == (0, 0, "bn")
    page = strict(run("report", "s.db", "--out", "page.html", "--json").stdout)
    assert page["page"] == "page.html"
    assert {one["kind"] for one in page["exhibits"]} >= {"table", "figure"}
    made = strict(run("corrupt", "out", "--clean", path, "--only", "contrast", "--workers", "1", "--json").stdout)
    assert (made["out"], made["samples"], made["corruptions"]) == ("out", 60, ["contrast"])
    listed = strict(run("methods", "--json").stdout)
    assert {name: (one["line"], tuple(one["settings"])) for name, one in listed.items()} == {
        name: (line, line.settings) for name, line in delta_tta.methods().items()
    }


# how it ends, and what it says


def test_exit_codes_of_real_processes(small, tmp_path):
    (tmp_path / "bad.toml").write_text("methods = [")
    for arguments, code, words in (
        ([], 0, ""),  # the shell asks what can follow
        (["run", "bad.toml"], 2, "bad.toml is not readable as TOML"),
        ([*small, "-m", "source", "-m", "lame", "--set", "features=nowhere"], 1, "failed: lame on contrast 5"),
    ):
        environment = {**os.environ, **({} if arguments else typed("delta-tta meth"))}
        ended = subprocess.run([*MAIN, *arguments], env=environment, capture_output=True, text=True)
        assert (ended.returncode, "Traceback" in ended.stderr) == (code, False), ended.stderr
        assert words in ended.stderr
        if not arguments:
            assert ended.stdout.split() == ["methods"]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_exit_codes_of_a_process_that_is_stopped(way, code, small, tmp_path):
    held = Held(tmp_path / "place")
    with subprocess.Popen([*MAIN, *small, "-m", "source"], stderr=subprocess.PIPE, text=True) as process:
        until(held.pids, 300, "the network to be reached")
        process.send_signal(way)
        said = process.communicate()[1].splitlines()
    assert process.returncode == code
    assert said[0] == "0 of 1 cells are in s.db; the same command continues."
    assert said[1:] == [f"delta-tta: {'interrupted' if code == 130 else 'told to end'}."]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demo", "--colour"], "No such option"),
        (["dmeo"], "No such command 'dmeo'"),
        (["-q", "-v", "methods"], "expected one of them"),
        (["run", "-m", "tent", "--set", "lr"], "Expected --set name=value"),
        (["run", "-m", "tent", "--engine", "rya"], "Did you mean 'ray'"),
        (["compare", "tent", "--model", "resnet20", "--weights", "nowhere.pt"], "Expected weights at nowhere.pt"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments, words):
    result = run(*arguments, code=2)
    assert words in result.stderr
    assert not result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("reproduce table-5 --on cifar100", ["--data PATH", "cs.toronto.edu", "cifar-100-python/test"]),
        ("reproduce table-5 --on cifar100 --data nowhere", ["at nowhere", "cs.toronto.edu", "cifar-100-python/test"]),
        ("reproduce table-5 --on cifar100-c", ["--data PATH", "zenodo.org/records/3555552", "labels.npy"]),
        ("reproduce table-5 --on imagenet-c --data nowhere", ["nowhere", "zenodo.org/records/2235448", "fog/5/"]),
        ("reproduce table-8 --on imagenet-r", ["--data PATH", "hendrycks/imagenet-r", "200 sub-folders"]),
        ("reproduce table-8 --on ytbb-sub", ["--data PATH", "path, label, video, time"]),
        ("run -m tent --data cifar", ["`path`", "cs.toronto.edu"]),
        ("run -m tent --data cifar-c --path nowhere", ["nowhere", "zenodo.org", "delta-tta corrupt"]),
        ("run -m tent --data folder --path nowhere", ["at nowhere", "FOLDER/cat/*.png"]),
        ("run -m tent -c none --data video --path nowhere.csv", ["nowhere.csv", "path, label, video, time"]),
        ("compare tent --clean nowhere", ["at nowhere", "cs.toronto.edu"]),
    ],
)
def test_where_data_is_missing_the_message_says_what_to_do(arguments, words, tmp_path):
    *before, said = run(*arguments.split(), code=2).stderr.splitlines()
    assert all(word in said for word in [*words, "--on demo"])
    assert all(line.startswith("On ") for line in before), "on what it would be reproduced"


def test_without_results_or_weights_the_message_says_where_they_come_from():
    assert "`delta-tta run` makes one" in run("report", code=2).stderr
    assert "RobustBench" in run("reproduce", "table-5", "--on", "cifar100-c", "--data", "x", code=2).stderr
