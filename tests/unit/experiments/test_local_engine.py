"""Worker processes that run cells: one that dies is replaced."""

import contextlib
import os
import signal
import threading

import pytest

from delta_tta.experiments import Store
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.local_engine import Inline, Workers
from delta_tta.experiments.runner import Plan, run
from laboratory import Held, alive, ask, cell, place


@pytest.fixture
def root(tmp_path):
    """A folder with a place, its cache and its store."""
    place(tmp_path / "place")
    return tmp_path


def here(root, network="make", **changes):
    return place(root / "place", network, **changes)


def carry_out(root, cells, engine=None, on_progress=None, name="results.sqlite"):
    engine = engine or Inline(root / "cache")
    with Store(root / name) as store:
        return run(Plan.of(cells, Lab(root / "cache")), store, engine, on_progress)


def rows(root, name="results.sqlite"):
    """Cell → (result, trace, when it was finished)."""
    with Store(root / name, create=False) as store:
        finished = dict(ask(root / name, "SELECT key, finished FROM cells"))
        return {one: (found, store.trace(key), finished[key]) for key, one, found in store.results()}


def claims(root):
    return ask(root / "results.sqlite", "SELECT count(*) FROM claims")[0][0]


@contextlib.contextmanager
def killed_when_held(root, times):
    """Kill so many workers in the middle of their second batch, one after another; then let the next go on."""
    held, killed = Held(root / "place", batches=1), []

    def kill():
        for _ in range(times):
            killed.append(held.wait(*killed))
            os.kill(killed[-1], signal.SIGKILL)
        held.let_go()

    killer = threading.Thread(target=kill)
    killer.start()
    yield killed
    killer.join()
    assert not any(map(alive, killed))


@pytest.mark.slow
def test_a_cell_that_kills_its_worker_twice_is_given_up(root):
    cells = [cell(here(root), "source")]
    with killed_when_held(root, times=2):
        progress = carry_out(root, cells, Workers(root / "cache", 1, 1))
    assert (progress.done, list(progress.failed.values())) == (0, ["its process died (out of memory?)"])
    assert claims(root) == 0
    assert rows(root) == {}
    assert carry_out(root, cells).done == 1  # another day
