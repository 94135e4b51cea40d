"""Methods side by side, whatever becomes of the files."""

import json

import pytest
from typer.testing import CliRunner

from delta_tta.cli.commands import app
from laboratory import place


@pytest.fixture
def command(tmp_path, monkeypatch):
    """A comparison that takes some milliseconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELTA_TTA_CACHE", str(tmp_path / "cache"))
    where = place(tmp_path / "place")
    network = ["--clean", where.path, "--model", where.model]
    return ["compare", "source", "bn", *network, "--scenario", "DS+CB,rho=0.1", "-b", "10", "-c", "contrast"]


def test_a_file_that_cannot_be_written_does_not_cost_the_table(command):
    ended = CliRunner().invoke(app, [*command, "--workers", "0", "--json", "--page", "place/images.npz/page.html"])
    assert ended.exit_code == 1
    assert [one["method"] for one in json.loads(ended.stdout)] == ["source", "bn"]
    assert "images.npz" in ended.stderr.splitlines()[-1]
