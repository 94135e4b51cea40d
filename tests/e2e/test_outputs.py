"""Outputs that cannot take what is printed: other encodings, closed, a pipe that nobody reads, a full disk."""

import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from delta_tta.cli.commands import app
from delta_tta.experiments import Store
from laboratory import place

MAIN = [sys.executable, "-c", "from delta_tta.cli import main; main()"]


@pytest.fixture
def command(tmp_path, monkeypatch):
    """A comparison that takes some milliseconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELTA_TTA_CACHE", str(tmp_path / "cache"))
    where = place(tmp_path / "place")
    network = ["--clean", where.path, "--model", where.model]
    return ["compare", "source", "bn", *network, "--scenario", "DS+CB,rho=0.1", "-b", "10", "-c", "contrast"]


def kept(folder):
    """What the comparisons have kept, the oldest first."""
    found = []
    for path in sorted((folder / "cache" / "compared").glob("*.db")):
        with Store(path, create=False) as store:
            found.append([one.method for _, one, _ in store.results()])
    return found


def run(command, encoding="utf-8", **streams):
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "100"}
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run([*MAIN, *command, "--workers", "0"], env=environment, **both)


def test_where_letters_are_missing_there_is_ascii(command):
    ended = run(command, "cp1252")
    assert ended.returncode == 0, ended.stderr
    shown = ended.stdout.decode("cp1252")
    assert "DS+CB (rho=0.1)" in shown
    assert re.search(r"bn +\| +\d+\.\d +[+-]\d+\.\d", shown)
    assert "+- points against Source" in shown
    assert b"DS+CB (rho=0.1)" in ended.stderr


def close(*numbers):
    return lambda: [os.close(number) for number in numbers]


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [[1], [0, 1, 2]])
def test_closed_streams_stop_nothing(command, tmp_path, numbers):
    ended = run([*command, "--markdown", "table.md"], preexec_fn=close(*numbers))
    assert ended.returncode == 0, ended.stderr
    assert kept(tmp_path) == [["source", "bn"]]
    assert "| bn |" in (tmp_path / "table.md").read_text(encoding="utf-8")


def broken_pipe():
    reads, writes = os.pipe()
    os.close(reads)
    return writes


@pytest.mark.slow
@pytest.mark.parametrize("output", ["pipe", "/dev/full"])
def test_what_cannot_be_printed_is_kept(command, tmp_path, output):
    if output != "pipe" and not os.path.exists(output):
        pytest.skip("there is no such device")
    stream = broken_pipe() if output == "pipe" else os.open(output, os.O_WRONLY)
    try:
        ended = run([*command, "--page", "page.html"], stdout=stream)
    finally:
        os.close(stream)
    assert ended.returncode == 1
    assert b"Traceback" not in ended.stderr
    assert kept(tmp_path) == [["source", "bn"]]
    where = re.search(rb"Results: (.*); `delta-tta report", ended.stderr)[1].decode()
    page = CliRunner().invoke(app, ["report", where, "--json"])
    assert page.exit_code == 0, page.output
    assert "bn" in page.stdout
    assert (tmp_path / "page.html").is_file()
