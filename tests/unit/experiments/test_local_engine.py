"""Worker processes that run cells: one that dies is replaced."""

import contextlib
import os
import re
import signal
import threading

import pytest

from delta_tta.errors import SettingError
from delta_tta.experiments import Store
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.local_engine import Event, Inline, Prepare, Workers, failure, in_words, perform
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


def test_in_this_process_a_task_is_done_where_it_is_started(root):
    engine, one = Inline(root / "cache"), cell(here(root), "source")
    assert list(engine.events(0)) == []
    engine.start(one)
    *reports, last = engine.events(0)
    assert all(0 < event.samples <= 60 and not event.final for event in reports)
    assert (last.task, last.final, last.error, last.result.samples) == (one, True, None, 60)
    assert list(engine.events(0)) == []


def test_images_are_made_once_for_all_cells(root):
    engine, one = Inline(root / "cache"), cell(here(root), "source")
    engine.start(Prepare(one.place, "contrast", 5))
    (event,) = engine.events(0)
    assert (event.final, event.error, event.result) == (True, None, None)
    made = {path: path.stat().st_mtime_ns for path in (root / "cache").rglob("*") if path.is_file()}
    assert made
    engine.start(one)
    assert {path: path.stat().st_mtime_ns for path in made} == made


def test_errors_are_said_and_not_raised(root):
    where = here(root, "without_norms")
    said = []
    perform(Lab(root / "cache"), cell(where, "tent"), said.append)
    assert said[-1].final
    assert "the model has none" in said[-1].error
    assert said[-1].details == ""  # it was made for users


def raised(error):
    try:
        raise error
    except Exception as caught:
        return caught


def test_an_error_not_made_for_users_has_its_kind_its_place_and_a_traceback():
    found = failure("a task", raised(ArithmeticError("two lines")))
    assert re.fullmatch(r"ArithmeticError: two lines \(test_local_engine\.py:\d+\)", found.error)
    assert "Traceback" in found.details
    assert in_words(raised(SettingError("take another"))) == "take another"


def test_which_events_are_the_last(root):
    one = cell(here(root), "source")
    assert not Event(one, 30, 0.5).final
    assert Event(one, error="x").final
    assert Event(one, lost=True).final
    assert Event(Prepare(one.place, "fog", 5)).final
