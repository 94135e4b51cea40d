"""run, reproduce, report and compare, as a user runs them; stopped in the middle, too."""

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from delta_tta.cli.commands import app
from delta_tta.experiments import Store

SMALL = ["--images", "100", "--batch-size", "50", "--scenario", "IS+CB", "--workers", "0"]
CHEAP = ["reproduce", "figure-1", "figure-8b", "--workers", "1", "--threads", "1", "--store", "results.db"]


def run(*arguments, code=0):
    result = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"}).invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True, scope="module")
def _one_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELTA_TTA_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def test_a_file_and_options_say_the_same(tmp_path):
    (tmp_path / "one.toml").write_text(
        'methods = ["source", "tema"]\nscenarios = ["IS+CB"]\nimages = 100\nbatch_sizes = 50\nseeds = [1, 2]\n'
        "[settings]\nalpha = 0.9\n"
    )
    first = run("run", "one.toml", "--store", "a.db", "--workers", "0", "--json")
    options = ["-m", "source", "-m", "tema", "--seed", "1", "--seed", "2", "--set", "alpha=0.9"]
    second = run("run", *options, *SMALL, "--store", "b.db")
    assert "Results: b.db (4 of 4 cells)" in second.stderr
    assert "tema (alpha=0.9)" in second.stdout
    shown = run("compare", "a.db", "b.db").stdout
    assert "0 of 4 common cells changed" in shown
    rows = json.loads(first.stdout)
    assert {(row["method"], row["cell"]["stream"]) for row in rows} == {
        (m, f"IS+CB, seed {s}") for m in ("source", "tema") for s in (1, 2)
    }
    assert all(row["about"]["versions"]["torch"] and row["digest"] and row["samples"] == 100 for row in rows)


def finished():
    with contextlib.closing(sqlite3.connect("delta-tta.db")) as base:
        return base.execute("SELECT key, finished FROM cells").fetchall()


def test_what_is_there_is_not_run_again():
    run("run", "-m", "bn", *SMALL)
    before = finished()
    again = run("run", "-m", "bn", "-m", "source", *SMALL)
    after = finished()
    assert set(before) < set(after)
    assert len(after) == 2
    assert "2/2 source on" in again.stderr
    assert "bn on" not in again.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "Expected `methods`"),
        (["run", "nowhere.toml"], "Expected an experiment (TOML) at nowhere.toml"),
        (["run", "-m", "tent", "--set", "lrr=1"], "Did you mean 'lr'"),
        (["run", "-m", "tent", "--data", "cifar"], "Expected `path`"),
        (["run", "-m", "tent", "--reset", "sometimes"], "'each shift' or 'never'"),
        (["reproduce"], "or --all"),
        (["reproduce", "table-99"], "Unknown exhibit 'table-99'"),
        (["reproduce", "table-5", "--on", "cifar100"], "--data PATH"),
        (["reproduce", "table-5", "--on", "mars"], "Unknown benchmark 'mars'"),
        (["report", "nowhere.db"], "Expected a store of results at nowhere.db"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_code_2(arguments, words):
    result = run(*arguments, code=2)
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_foreign_file_is_left_alone(tmp_path):
    (tmp_path / "mine.db").write_text("my notes")
    result = run("run", "-m", "bn", *SMALL, "--store", "mine.db", code=2)
    assert "no store of results" in result.stderr
    assert (tmp_path / "mine.db").read_text() == "my notes"


def test_a_cell_that_fails_is_named_and_the_others_are_run():
    settings = ["--set", "features=nowhere"]  # LAME alone looks for it
    result = run("run", "-m", "source", "-m", "lame", *SMALL, *settings, code=1)
    assert "failed: lame on motion_blur 5" in result.stderr
    assert "(1 of 2 cells)" in result.stderr


def command(*arguments):
    code = "from delta_tta.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def wait_for_a_cell(process):
    for line in process.stderr:
        if line.startswith("2/"):
            return
    raise AssertionError(f"ended early: {process.wait()}")


@pytest.mark.slow
@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGTERM])
def test_a_reproduction_that_is_killed_goes_on_where_it_was(way, tmp_path):
    process = command(*CHEAP)
    wait_for_a_cell(process)
    os.kill(process.pid, way)
    said = process.communicate(timeout=60)[1]
    if way == signal.SIGTERM:
        assert process.returncode == 143
        assert "the same command continues" in said
    with Store("results.db") as store:
        before = {key: result.seconds for key, _, result in store.results()}
    assert len(before) >= 2
    if way == signal.SIGTERM:
        return  # to go on is the same
    shown = json.loads(run(*CHEAP, "--json").stdout)
    assert [(one["id"], one["kind"]) for one in shown] == [("figure-1", "strips"), ("figure-8b", "figure")]
    with Store("results.db") as store:
        after = {key: result.seconds for key, _, result in store.results()}
    assert {key: after[key] for key in before} == before, "nothing lost, nothing run twice"
    assert len(after) == 5
    made = {path.name for path in (tmp_path / "reproduced-demo").iterdir()}
    figures = {f"figure-{name}.{kind}" for name in ("1", "8b") for kind in ("png", "svg")}
    assert made == {*figures, "report.html"}
    run("report", "results.db", "--out", "page.html")
    lead = re.search(r'<p class="lead">(.*?)</p>', (tmp_path / "page.html").read_text(encoding="utf-8"))[1]
    assert "all 15 corruptions" not in lead, "what is the same with --full and without is no sign of --full"
    assert lead.startswith("On 2,000 embedded CIFAR-10 test images")


@pytest.mark.slow
def test_an_interrupted_run_leaves_no_process_behind():
    process = command(*CHEAP)
    wait_for_a_cell(process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert children
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    process.communicate()
    end = time.monotonic() + 10
    while any(map(lives, children)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(lives, children))


def lives(pid):
    """Whether a process is there, and not only its exit code that nobody asked for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_table_stands_beside_the_papers(tmp_path):
    shown = run("run", "-m", "source", "--scenario", "IS+CB", "--store", "s.db", "--workers", "0", "-q")
    assert "91.8" not in shown.stdout
    listed = run("reproduce", "--list", "table-7", "table-1", "--store", "s.db")
    assert "table-7" in listed.stdout
    assert "as they share cells" in listed.stderr
    assert not (tmp_path / "delta-tta.db").exists()


def test_the_report_of_any_store_is_a_page(tmp_path):
    run("run", "-m", "source", "-m", "bn", *SMALL, "--store", "s.db")
    said = run("report", "s.db", "--out", "page.html").stderr
    assert "page.html" in said
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Accuracy over the stream" in page
    assert "Predictions per class" in page


def test_tensorboard_gets_every_run(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run("run", "-m", "source", "-m", "bn", *SMALL, "--tensorboard", "board")
    folders = sorted((tmp_path / "board").iterdir())
    assert len(folders) == 2
    events = EventAccumulator(str(folders[0]))
    events.Reload()
    assert "class_mean_accuracy" in events.Tags()["scalars"]
    assert len(events.Scalars("accuracy over the stream")) > 10
