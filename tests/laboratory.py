"""A small place for experiments: 60 images of five classes, a network in a file, and processes of their own.

The network can be held in the middle of a cell, in whatever process it runs: while there is a file `hold` beside it, it
answers as many batches as that says, and then waits; a file `held-PID` says that it does. A file `slow` makes every
batch take half a second.
"""

import contextlib
import dataclasses
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from delta_tta.experiments import Cell, Place, Result, Store, Trace
from delta_tta.experiments.lab import Lab
from delta_tta.streams import StreamSpec

NETWORK = '''
"""A network that can be held, and others."""

import os
import time
from pathlib import Path

import torch
from torch import nn

from delta_tta.normalization import Normalisation

HERE = Path(__file__).parent
HALF = Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def allowed():
    try:
        return float((HERE / "hold").read_text())
    except FileNotFoundError:
        return float("inf")


class Net(nn.Module):
    answered = 0

    def __init__(self, norm):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = nn.Sequential(
                nn.Conv2d(3, 12, 3, padding=1), norm(12), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
            )
            self.head = nn.Linear(12, 5)
            nn.init.normal_(self.head.weight, std=4.0)
        self.normalisation = HALF

    def forward(self, x):
        end = time.monotonic() + 30  # nothing is left behind for ever
        while self.answered >= allowed() and time.monotonic() < end:
            (HERE / f"held-{os.getpid()}").touch()
            time.sleep(0.01)
        Net.answered += 1
        if (HERE / "slow").exists():
            time.sleep(0.5)
        return self.head(self.body(x))


def make():
    return Net(nn.BatchNorm2d)


def without_norms():
    return Net(lambda channels: nn.Identity())


def other_weights():
    net = make()
    nn.init.constant_(net.head.bias, 0.25)
    return net
'''
LABELS = np.arange(60) % 5


def pixels(seed: int = 0) -> np.ndarray:
    """Images whose colour says a little about their class."""
    draw = np.random.default_rng(seed)
    tint = np.array([[40, 0, 0], [0, 40, 0], [0, 0, 40], [40, 40, 0], [0, 40, 40]])[LABELS]
    return (draw.integers(0, 200, (60, 8, 8, 3)) + tint[:, None, None]).astype(np.uint8)


def place(folder: Path, network: str = "make", **changes) -> Place:
    """Write images and network into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    images = changes.pop("pixels", None)
    labels = changes.pop("labels", LABELS)
    np.savez(folder / "images.npz", images=pixels() if images is None else images, labels=labels)
    (folder / "network.py").write_text(NETWORK)
    values = {"data": "cifar", "path": str(folder / "images.npz"), "model": f"{folder / 'network.py'}:{network}"}
    return Place(**{**values, **changes})


def cell(where: Place, method: str = "tent+delta", seed: int = 2020, scenario: str = "IS+CB", **changes) -> Cell:
    """Return a cell that takes some milliseconds."""
    values = {"corruptions": ("contrast",), "batch_size": 10, **changes}
    return Cell(where, method, dataclasses.replace(StreamSpec.parse(scenario), seed=seed), **values)


def result(accuracy: float = 0.5, seed: int = 0, **changes) -> Result:
    """Return a result that nothing has computed."""
    draw = np.random.default_rng(seed)
    predicted, labels = draw.integers(0, 5, (2, 40)).astype(np.int32)
    trace = Trace(predicted, labels, {"batch mean": draw.random((4, 8), dtype=np.float32)})
    values = {
        "method": "tent",
        "stream": "IS+CB, seed 2020",
        "digest": "0123456789abcdef",
        "samples": 40,
        "class_mean_accuracy": accuracy,
        "accuracy": accuracy,
        "ece": 0.125,
        "prediction_std": 3.5,
        "prediction_range": 9,
        "domains": {},
        "seconds": 1.5,
        "about": {
            "data": "π and other letters",
            "settings": {"lr": 1e-3},
            "model": "a network",
            "weights": "its own",
            "normalisation": "none",
            "versions": {"torch": "2"},
        },
        "trace": trace,
    }
    return Result(**{**values, **changes})


def same_trace(one: Trace, other: Trace) -> bool:
    """Whether two traces are equal to the last bit."""
    arrays = [{"predicted": t.predicted, "labels": t.labels, **t.batches} for t in (one, other)]
    first, second = ({name: (a.dtype, a.shape, a.tobytes()) for name, a in own.items()} for own in arrays)
    return first == second


def same_result(one: Result, other: Result) -> bool:
    """Whether two runs came to the same; how long they took does not count, nor do tuples that JSON made lists."""
    first, second = (dataclasses.replace(r, seconds=0, about={}, trace=one.trace) for r in (one, other))
    return first == second


def keys(cells: list[Cell], cache: Path) -> list[str]:
    """Return the keys of cells."""
    lab = Lab(cache)
    return [lab.key(one) for one in cells]


def python(script: str, *arguments: object) -> subprocess.Popen:
    """Start a script in a process, and a group of processes, of its own; it can be spoken to."""
    tests, path = str(Path(__file__).parent), os.environ.get("PYTHONPATH")
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([tests, *filter(None, [path])])},
    )


def ask(store: Path, query: str, *values: object) -> list[tuple]:
    """Ask the file of a store, or change it, past the store."""
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as base:
        return base.execute(query, values).fetchall()


def until(true, seconds: float = 30.0, what: str = "") -> None:
    """Wait until something is true; fail if it never is."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"waited {seconds} seconds in vain{what and f' for {what}'}"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and that nobody has asked for yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class Held:
    """The network beside a place, held in every process after some batches, until `let_go`."""

    def __init__(self, folder: Path, batches: int = 0) -> None:
        self.folder = folder
        part = folder / "part"
        part.write_text(str(batches))
        part.rename(folder / "hold")  # never seen empty

    def pids(self) -> list[int]:
        """Return which processes have come to it."""
        return [int(file.name.partition("-")[2]) for file in self.folder.glob("held-*")]

    def wait(self, *known: int) -> int:
        """Wait until a process has come that was not known; return its number."""
        until(lambda: set(self.pids()) - {*known}, what="a process to be held")
        return (set(self.pids()) - {*known}).pop()

    def let_go(self) -> None:
        """Let them go on."""
        (self.folder / "hold").unlink()


def two_results(folder):
    """Return a store in the folder with the results `first` and `second`."""
    where = place(folder / "place")
    with Store(folder / "s.db") as store:
        for key in ("first", "second"):
            store.record(key, cell(where), result())
    return folder / "s.db"
