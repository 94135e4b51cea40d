"""`run` and `reproduce`, killed with SIGKILL while their store is half full, and started again until they are done.

Each life is a fork of this process, which never runs a cell itself, as threads do not survive a fork. Prints what it
saw as JSON; whatever is lost, done twice or differs from an uninterrupted run is a failure.

Arguments: a folder, how often to kill `run`, how often to kill `reproduce`; perhaps how often in a hundred times the
cells run in two other processes, and a number for other moments.
"""

import json
import logging
import os
import random
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import matplotlib.pyplot  # noqa: F401  (every life would read it again, and the next)
import numpy as np
import torch._dynamo

sys.path.insert(0, str(Path(__file__).parents[1]))

from delta_tta.cli import main
from delta_tta.cli.commands import app  # noqa: F401
from delta_tta.experiments import Store
from laboratory import ask, place, same_trace

EXPERIMENT = """
methods = ["source", "bn", "tent", "tent+delta", "lame"]
scenarios = ["IS+CB", "DS+CB (rho=0.1)"]
corruptions = ["contrast", "brightness"]
seeds = 1
batch_sizes = 10
images = 40
data = "cifar"
path = "place/images.npz"
model = "place/network.py:make"
"""
STEP = 4
"""At most so many cells more between two kills."""
ELSEWHERE = 0.0
"""How often the cells run in other processes."""
PATIENCE = 300
"""Seconds after which a life is given up."""


def fork(*arguments, workers=0):
    """Run the command in a process of its own; what it says goes to a file."""
    child = os.fork()
    if child:
        return child
    try:
        said = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.argv = ["delta-tta", *arguments, "--workers", str(workers)]
        main()
        os._exit(0)
    except SystemExit as end:
        os._exit(end.code or 0)
    except BaseException:
        logging.exception("in the child")
        os._exit(99)


def finished(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def whole_run(*arguments):
    assert finished(fork(*arguments)) == 0, Path("said.txt").read_text()


def count(path):
    """Return how many results there are, without ever writing."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as base:
            return base.execute("SELECT count(*) FROM cells").fetchone()[0]
    except sqlite3.OperationalError:  # it is being made
        return 0


def finish_times(path):
    return dict(ask(path, "SELECT key, finished FROM cells"))


def assert_same_results(path, expected):
    """Equal to the last bit but for the seconds; and every row is whole."""
    with Store(path, create=False) as one, Store(expected, create=False) as other:
        first, second = ({key: (cell, found) for key, cell, found in store.results()} for store in (one, other))
        assert first.keys() == second.keys()
        for key, (cell, found) in first.items():
            assert cell == second[key][0]
            assert {**found.as_dict(), "seconds": 0} == {**second[key][1].as_dict(), "seconds": 0}, cell
            assert same_trace(one.trace(key), other.trace(key)), cell
        assert ask(one.path, "SELECT count(*) FROM claims") == [(0,)]


def kill(arguments, path, target, chance):
    """Start the command and kill it some moments after the store has so many cells; return its exit code."""
    child = fork(*arguments, workers=2 if chance.random() < ELSEWHERE else 0)
    end = time.monotonic() + PATIENCE
    while count(path) < target:
        assert time.monotonic() < end, Path("said.txt").read_text()
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    time.sleep(chance.random() * 0.05)  # in the middle of a cell, of a commit, of a line
    os.kill(child, signal.SIGKILL)
    return finished(child)


def kill_while_half_full(name, arguments, kills, chance):
    """Kill the command that often, on one store or several; finished, each is as an uninterrupted one.

    Args:
        name: of the stores.
        arguments: of the command, for a name.
        kills: how many.
        chance: says when.
    """
    whole_run(*arguments("whole"))
    total, moments = count("whole.db"), []
    for number in range(3 * kills):
        path, before = f"{name}{number}.db", {}
        while len(moments) < kills and len(before) + STEP < total:
            code = kill(arguments(f"{name}{number}"), path, len(before) + chance.randint(1, STEP), chance)
            after = finish_times(path)
            assert {key: after[key] for key in before} == before, "something was lost or done twice"
            before = after
            if code == 0 or len(after) == total:  # it was quicker than we
                break
            assert code == -signal.SIGKILL, Path("said.txt").read_text()
            moments.append(len(after))
        whole_run(*arguments(f"{name}{number}"))
        after = finish_times(path)
        assert {key: after[key] for key in before} == before, "something was done twice"
        assert_same_results(path, "whole.db")
        if len(moments) == kills:
            return {"cells": total, "kills": kills, "stores": number + 1, "at": moments}
    raise AssertionError(f"it was always quicker: killed {len(moments)} times in {3 * kills} runs")


def two_at_once(arguments):
    """Two of the same on one store: both end well, and agree with one alone."""
    children = [fork(*arguments("shared")) for _ in range(2)]
    assert [finished(child) for child in children] == [0, 0], Path("said.txt").read_text()
    assert_same_results("shared.db", "whole.db")


def killed_runs(kills, chance):
    place(Path("place"))
    Path("e.toml").write_text(EXPERIMENT)

    def arguments(name):
        return ["run", "e.toml", "--store", f"{name}.db"]

    seen = kill_while_half_full("killed", arguments, kills, chance)
    two_at_once(arguments)
    return seen


def killed_reproductions(kills, chance):
    draw = np.random.default_rng(0)
    np.savez("test.npz", images=draw.integers(0, 256, (100, 32, 32, 3), dtype=np.uint8), labels=np.arange(100))

    def arguments(name):
        where = ["--on", "cifar100", "--data", "test.npz", "--store", f"{name}.db", "--out", f"{name}-files"]
        return ["reproduce", "table-3", *where]

    seen = kill_while_half_full("killed", arguments, kills, chance)
    files = sorted(file.name for file in Path("whole-files").iterdir())
    for folder in Path().glob("killed*-files"):
        assert sorted(file.name for file in folder.iterdir()) == files
        for file in (name for name in files if name.startswith("table")):
            assert (folder / file).read_bytes() == Path("whole-files", file).read_bytes()
    return seen


def in_folder(folder, act, *arguments):
    folder.mkdir()
    os.chdir(folder)
    return act(*arguments)


if __name__ == "__main__":
    root = Path(sys.argv[1]).absolute()
    runs, reproductions, percent, seed = (*map(int, sys.argv[2:]), 0, 0)[:4]
    os.environ["DELTA_TTA_CACHE"] = str(root / "cache")
    torch.set_num_threads(1)
    chance, ELSEWHERE, seen = random.Random(seed), percent / 100, {}
    if runs:
        seen["run"] = in_folder(root / "run", killed_runs, runs, chance)
    if reproductions:
        seen["reproduce"] = in_folder(root / "reproduce", killed_reproductions, reproductions, chance)
    print(json.dumps(seen))
