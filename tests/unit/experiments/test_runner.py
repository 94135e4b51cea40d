"""From cells to a full store: equal results from every engine, and nothing lost or done twice, whoever is killed."""

import contextlib
import dataclasses
import os
import pickle
import signal
import threading

import pytest

from delta_tta.experiments import Cell, Store
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.local_engine import Inline, Workers
from delta_tta.experiments.runner import Plan, default_cache, passes, run
from laboratory import Held, alive, ask, cell, place, python, same_result, same_trace, until

MASTER = """
import pickle, sys
from pathlib import Path
from delta_tta.experiments import Store
from delta_tta.experiments.local_engine import Inline, Workers
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.runner import Plan, run
root, engine = Path(sys.argv[1]), sys.argv[2]
plan = Plan.of(pickle.loads((root / "cells").read_bytes()), Lab(root / "cache"))
made = {}
with Store(root / "results.sqlite") as store:
    def on_progress(progress):
        if progress.last:
            made[str(progress.last[0])] = None
    made_by = Inline(root / "cache") if engine == "inline" else Workers(root / "cache", 1, 1)
    progress = run(plan, store, made_by, on_progress)
print(progress.found, progress.done, progress.failed, *made, sep="\\n")
"""


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


def start_master(root, cells, engine):
    (root / "cells").write_bytes(pickle.dumps(cells))
    return python(MASTER, root, engine)


def rows(root, name="results.sqlite"):
    """Cell → (result, trace, when it was finished)."""
    with Store(root / name, create=False) as store:
        finished = dict(ask(root / name, "SELECT key, finished FROM cells"))
        return {one: (found, store.trace(key), finished[key]) for key, one, found in store.results()}


def claims(root):
    return ask(root / "results.sqlite", "SELECT count(*) FROM claims")[0][0]


def workers_of(pid):
    """The processes below a process."""
    children = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children += [int(name)] if parent == pid else []
    return children


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for one in ours:
        assert same_result(ours[one][0], theirs[one][0]), one
        assert same_trace(ours[one][1], theirs[one][1]), one


@pytest.mark.slow
def test_other_processes_come_to_the_same_results_even_when_one_is_killed_and_nothing_is_run_again(root):
    where = here(root)
    cells = [
        cell(where, "tent+delta"),
        cell(where, "source"),
        cell(where, "eata", corruptions=("none",)),
        cell(where, "tema", statistics=True, scenario="DS+CI (rho=0.5, pi=0.1)"),
        cell(where, "tent", corruptions=("contrast", "fog"), order="continual"),
    ]
    seen = []
    with killed_when_held(root, times=1) as killed:
        progress = carry_out(root, cells, Workers(root / "cache", 1, 1), lambda t: seen.append((t.done, t.worked)))
    assert len(killed) == 1
    assert (progress.total, progress.found, progress.done, progress.failed, progress.running) == (5, 0, 5, {}, {})
    assert seen[0] == (0, 0)
    assert seen[-1] == (5, pytest.approx(progress.work))
    assert seen == sorted(seen)
    assert carry_out(root, cells, name="inline.sqlite").done == 5
    ours, theirs = rows(root), rows(root, "inline.sqlite")
    assert list(ours) == cells  # in their order: there was one worker
    assert_same(ours, theirs)

    progress = carry_out(root, [*cells, cell(where, "bn")])
    assert (progress.total, progress.found, progress.done) == (6, 5, 6)
    again = rows(root)
    assert {one: again[one][2] for one in cells} == {one: ours[one][2] for one in cells}
    progress = carry_out(root, cells, NothingMayStart(root / "cache"))
    assert (progress.total, progress.found, progress.done, progress.work) == (5, 5, 5, 0)


class NothingMayStart(Inline):
    def start(self, task):
        raise AssertionError(f"{task} was started")


def test_a_cell_that_fails_is_reported_and_the_others_are_run(root):
    fine, bare = here(root), here(root, "without_norms")
    cells = [
        cell(fine, "source"),
        cell(bare, "tent"),
        cell(bare, "source"),
        cell(fine, "lame", settings=(("features", "x"),)),
        cell(fine, "bn"),
    ]
    progress = carry_out(root, cells)
    assert (progress.done, len(progress.failed)) == (3, 2)
    assert set(rows(root)) == {cells[0], cells[2], cells[4]}
    plan = Plan.of(cells, Lab(root / "cache"))
    said = {plan.cells[key].method: words for key, words in progress.failed.items()}
    assert "trains the weight and bias of norm layers, and the model has none" in said["tent"]
    assert "features" in said["lame"]
    assert claims(root) == 0
    assert carry_out(root, cells).failed == progress.failed  # it is tried again, as nothing says that it always fails


def test_what_no_cell_can_do_without_is_known_before_anything_runs(root):
    lab = Lab(root / "cache")
    with pytest.raises(ValueError, match="no function 'nothing'"):
        Plan.of([cell(here(root)), cell(here(root, "nothing"))], lab)


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
def test_after_kill_9_of_everything_a_second_run_does_only_what_is_missing(root):
    where = here(root)
    cells = [cell(where, method) for method in ("source", "tent", "tent+delta", "bn")]
    held = Held(root / "place", batches=8)  # of the six of each cell: in the middle of the second
    master = start_master(root, cells, "workers")
    worker = held.wait()
    (root / "place" / "slow").touch()
    master.kill()
    master.wait()
    before = rows(root)
    assert list(before) == cells[:1]
    assert claims(root) == 1
    assert alive(worker)
    held.let_go()
    until(lambda: not alive(worker), 5, "the orphan to notice that it is one")
    master.communicate()
    (root / "place" / "slow").unlink()
    progress = carry_out(root, cells)
    assert (progress.found, progress.done) == (1, 4)
    after = rows(root)
    assert set(after) == set(cells)
    assert after[cells[0]][2] == before[cells[0]][2]
    assert claims(root) == 0
    carry_out(root, cells, name="undisturbed.sqlite")
    assert_same(after, rows(root, "undisturbed.sqlite"))


@pytest.mark.slow
def test_two_runs_at_once_share_the_cells(root):
    where = here(root)
    cells = [cell(where, method, seed) for seed in range(5) for method in ("source", "tent", "tent+delta", "bn")]
    Store(root / "results.sqlite").close()
    held = Held(root / "place")
    masters = [start_master(root, cells, "inline") for _ in range(2)]
    held.wait(held.wait())  # both are in a cell
    held.let_go()
    said = [master.communicate(timeout=60) for master in masters]
    assert [master.returncode for master in masters] == [0, 0], said
    made = []
    for out, _ in said:
        found, done, failed, *own = out.splitlines()
        assert (found, done, failed) == ("0", "20", "{}")
        assert own
        made += own
    assert sorted(made) == sorted(map(str, cells))  # each by one of them
    assert set(rows(root)) == set(cells)
    assert claims(root) == 0


@pytest.mark.slow
def test_ctrl_c_gives_back_the_claims_and_leaves_nothing_running(root):
    where = here(root)
    cells = [cell(where, method) for method in ("source", "tent")]
    held = Held(root / "place", batches=8)
    master = start_master(root, cells, "workers")
    worker = held.wait()
    below = workers_of(master.pid)
    assert worker in below
    assert claims(root) == 1
    os.killpg(master.pid, signal.SIGINT)  # as a terminal does
    _, error = master.communicate(timeout=20)
    assert master.returncode != 0
    assert error.count("Traceback") == 1  # the master's; a worker says nothing
    assert "KeyboardInterrupt" in error
    until(lambda: not any(map(alive, below)), 5)
    assert claims(root) == 0
    assert list(rows(root)) == cells[:1]
    held.let_go()
    assert carry_out(root, cells).done == 2


def test_a_plan_knows_each_cell_once_and_what_it_costs(root):
    where = here(root)
    cells = [cell(where, "tent"), cell(where, "tent"), cell(where, "tent", corruptions=("fog", "snow"), order="mixed")]
    plan = Plan.of(cells, Lab(root / "cache"))
    assert list(plan.cells.values()) == [cells[0], cells[2]]
    assert list(plan.samples.values()) == [60, 120]
    one, two = map(plan.work, plan.cells)
    assert 0 < one < two == 2 * one


def test_dear_methods_are_known_to_be_dear(root):
    where = here(root)
    cost = {name: passes(cell(where, name, batch_size=64)) for name in ("memo", "cotta", "tta", "tent", "bn", "source")}
    assert cost["memo"] > cost["cotta"] > cost["tent"] > cost["source"] >= 1
    assert cost["tta"] > cost["tent"]
    assert cost["bn"] < cost["tent"]
    window = Cell(where, "tent", cell(where).stream, settings=(("update", "window"), ("length", 256)))
    assert passes(window) > 2 * cost["tent"]
    assert passes(dataclasses.replace(window, batch_size=1, settings=())) > cost["tent"]


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DELTA_TTA_CACHE", raising=False)
    assert default_cache() == tmp_path / "delta-tta"
    monkeypatch.setenv("DELTA_TTA_CACHE", str(tmp_path / "mine"))
    assert default_cache() == tmp_path / "mine"
