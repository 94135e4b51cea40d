"""`delta-tta run`: a file or options, and a store that is continued."""

import contextlib
import json
import sqlite3

from command import run

SMALL = ["--images", "100", "--batch-size", "50", "--scenario", "IS+CB", "--workers", "0"]


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
