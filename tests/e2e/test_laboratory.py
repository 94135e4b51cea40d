"""run, reproduce, report and compare, as a user runs them; stopped in the middle, too."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from delta_tta.cli.commands import app
from delta_tta.experiments import Store

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
