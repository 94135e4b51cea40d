"""Outputs that cannot take what is printed: other encodings, closed, a pipe that nobody reads, a full disk."""

import io
import json
import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from delta_tta.cli.commands import app
from delta_tta.cli.support.encoding import lenient, plain
from delta_tta.cli.support.keep import KEPT, kept_store
from delta_tta.experiments import Store
from laboratory import cell, place, result

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


@pytest.mark.parametrize(("letter", "ascii_"), [("▼", "-"), ("λ", "lambda"), ("Π", "pi"), ("é", "e"), ("汉", "?")])
def test_the_nearest_in_ascii(letter, ascii_):
    assert plain(letter) == ascii_


def test_who_asks_for_another_way_to_write_gets_it(monkeypatch):
    ours, theirs = (io.TextIOWrapper(io.BytesIO(), "ascii", errors) for errors in ("strict", "replace"))
    monkeypatch.setattr("sys.stdout", ours)
    monkeypatch.setattr("sys.stderr", theirs)
    lenient()
    for stream, written in ((ours, b"rho"), (theirs, b"?")):
        stream.write("ρ")
        stream.flush()
        assert stream.buffer.getvalue() == written


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


def test_a_file_that_cannot_be_written_does_not_cost_the_table(command):
    ended = CliRunner().invoke(app, [*command, "--workers", "0", "--json", "--page", "place/images.npz/page.html"])
    assert ended.exit_code == 1
    assert [one["method"] for one in json.loads(ended.stdout)] == ["source", "bn"]
    assert "images.npz" in ended.stderr.splitlines()[-1]


def test_the_newest_comparisons_stay(tmp_path, monkeypatch):
    where, cache = place(tmp_path / "place"), tmp_path / "cache"
    (cache / "compared").mkdir(parents=True)
    for day in range(10, 10 + KEPT):
        for end in ("", "-wal"):
            (cache / "compared" / f"2020-01-{day}-000000-1.db{end}").touch()
    with pytest.raises(ArithmeticError), kept_store(cache):
        raise ArithmeticError
    assert len(list((cache / "compared").iterdir())) == 2 * KEPT  # without results nothing is kept
    with kept_store(cache) as store:
        store.record("a", cell(where), result())
    names = {path.name for path in (cache / "compared").iterdir()}
    assert len(names) == 2 * KEPT - 1
    assert store.path.name in names
    assert not any(name.startswith("2020-01-10") for name in names)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    with kept_store(tmp_path / "file") as store:  # no folder can be made there
        store.record("a", cell(where), result())
    assert store.path.exists()
