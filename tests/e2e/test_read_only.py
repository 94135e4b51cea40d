"""Stores and folders that may be read and not written: reports read them, runs say so in one sentence."""

import os
import shutil
import subprocess

import pytest
from typer.testing import CliRunner

from delta_tta.cli.commands import app
from delta_tta.experiments import Store
from laboratory import cell, place, result

SMALL = ["-m", "source", "--images", "50", "--scenario", "IS+CB", "--workers", "0"]


def run(*arguments, code=0):
    found = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"}).invoke(app, list(map(str, arguments)))
    assert found.exit_code == code, found.output
    return found


class Folder:
    """A folder on a disk of its own for root, who may write everywhere else."""

    def __init__(self, path):
        self.path = path
        path.mkdir()
        self.mounted = os.getuid() == 0
        if self.mounted and self._mount("-t", "tmpfs", "-o", "size=4m", "tmpfs").returncode:
            pytest.skip("root can mount nothing here")

    def _mount(self, *words):
        return subprocess.run(["mount", *words, self.path], capture_output=True)

    def lock(self):
        if self.mounted:
            assert self._mount("-o", "remount,ro").returncode == 0
        else:
            for file in self.path.iterdir():
                file.chmod(0o444)
            self.path.chmod(0o555)

    def close(self):
        if self.mounted:
            subprocess.run(["umount", self.path], check=True)
        else:
            self.path.chmod(0o755)


@pytest.fixture
def folder(tmp_path):
    made = Folder(tmp_path / "disk")
    yield made
    made.close()


def filled(path, where):
    store = Store(path)
    for number, method in enumerate(("source", "tent")):
        store.record(f"key {number}", cell(where, method), result(number / 4, number, method=method))
    return store


def killed(path, where, files):
    """Leave these files of a store as kill -9 does: the last results are not in the database itself."""
    with filled(path.parent.parent / path.name, where) as store:
        for file in files:
            shutil.copy(f"{store.path}{file}", f"{path}{file}")


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_a_store_that_may_not_be_written_can_be_read(folder, tmp_path, monkeypatch, end):
    path, where = folder.path / "s.db", place(tmp_path / "place")
    filled(path, where).close() if end == "closed" else killed(path, where, ["", "-wal", "-shm"])
    folder.lock()
    monkeypatch.chdir(tmp_path)
    assert "The page: page.html" in run("report", path, "--out", "page.html").stderr
    assert "tent" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "0 of 2 common cells changed" in run("compare", path, path).stdout
    assert "table-7" in run("reproduce", "--list", "table-7", "--store", path).stdout
    with Store(path, create=False) as read, pytest.raises(OSError, match=r"s\.db cannot be used: .*readonly"):
        read.record("key 9", cell(where), result())


def test_results_that_cannot_be_read_without_writing_are_not_left_out(folder, tmp_path):
    killed(folder.path / "s.db", place(tmp_path / "place"), ["", "-wal"])
    folder.lock()
    said = run("report", folder.path / "s.db", code=1).stderr
    assert "s.db-wal; copy both, and read those." in said


def test_a_run_says_what_may_not_be_written(folder, tmp_path, monkeypatch):
    filled(folder.path / "s.db", place(tmp_path / "place")).close()
    folder.lock()
    monkeypatch.setenv("DELTA_TTA_CACHE", str(tmp_path / "cache"))
    for store, words in (
        ("s.db", "may not be written; a store of results must be. Choose another with --store."),
        ("new.db", f"{folder.path} may not be written; a store of results must be. Choose another with --store."),
        ("deeper/new.db", f"The folder {folder.path / 'deeper'} for the store of results cannot be made: "),
    ):
        said = run("run", *SMALL, "--store", folder.path / store, code=1).stderr
        assert words in said
        assert len(said.splitlines()) == 1


def test_a_cache_that_may_not_be_written_is_named(folder, tmp_path):
    folder.lock()
    said = run("run", *SMALL, "--store", tmp_path / "s.db", "--cache", folder.path, code=1).stderr
    assert f"Images cannot be kept in {folder.path} (" in said
    assert "choose another folder with --cache or $DELTA_TTA_CACHE" in said
