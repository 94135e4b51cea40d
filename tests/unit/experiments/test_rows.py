"""Rows that somebody else wrote into a store: their checksum is right, what they say is not."""

import contextlib
import json
import sqlite3

import pytest
from typer.testing import CliRunner

from delta_tta.cli.commands import app
from delta_tta.errors import DataError
from delta_tta.experiments import Store
from delta_tta.files import fingerprint
from laboratory import two_results


@pytest.fixture
def path(tmp_path):
    return two_results(tmp_path)


def forge(path, column, change):
    """Change a JSON column of the second row, and its checksum with it."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.row_factory = sqlite3.Row
        row = dict(base.execute("SELECT cell, result FROM cells WHERE key = 'second'").fetchone())
        row[column] = change(row[column])
        values = (*row.values(), fingerprint("second", *row.values()))
        base.execute("UPDATE cells SET cell = ?, result = ?, digest = ? WHERE key = 'second'", values)


def without(*names):
    def change(text):
        values = inner = json.loads(text)
        for name in names[:-1]:
            inner = inner[name]
        del inner[names[-1]]
        return json.dumps(values)

    return change


def with_(**changes):
    return lambda text: json.dumps({**json.loads(text), **changes})


@pytest.mark.parametrize(
    ("column", "change", "words"),
    [
        ("cell", without("place"), "it has no 'place'"),
        ("cell", without("method"), "method"),
        ("cell", with_(method="tnet"), "Did you mean 'tent'"),
        ("cell", with_(place={"data": "moon"}), "Unknown data 'moon'"),
        ("cell", with_(settings=[1]), "items"),
        ("cell", with_(more=1), "more"),
        ("cell", lambda text: text[:-1], "Expecting"),
        ("cell", lambda text: "[" * 100_000, "recursion"),
        ("result", without("samples"), "it has no 'samples'"),
        ("result", without("about", "versions"), "it has no 'versions'"),
        ("result", with_(about=[]), "the result has about = []"),
        ("result", with_(class_mean_accuracy="high"), "the result has class_mean_accuracy = 'high'"),
        ("result", with_(samples=True), "the result has samples = True"),
        ("result", with_(more=1), "more"),
        ("result", lambda text: "null", "expected the result to be a table of values, but got NoneType"),
    ],
)
def test_a_forged_row_is_named(path, column, change, words):
    forge(path, column, change)
    with Store(path) as store, pytest.raises(DataError) as error:
        list(store.results())
    assert f"{path}: the row of cell second cannot be read: " in str(error.value)
    assert words in str(error.value)
    said = CliRunner().invoke(app, ["report", str(path)])
    assert said.exit_code == 2
    assert "cell second" in said.stderr.replace("\n", " ")
