"""The local engine: worker processes that run cells, one at a time each.

A worker and its master use one pipe per worker: a shared queue would stay locked for ever if a worker is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Protocol

import torch

from ..errors import DeltaError
from ..metrics import Metrics
from .allocator import keep_freed_memory
from .cell import Cell
from .evaluate import Result
from .lab import Lab
from .place import Place

REPORT_EVERY = 0.2
"""Seconds between two reports on the same cell."""


@dataclass(frozen=True)
class Prepare:
    """Make the images of one corruption, so that two workers do not both make them."""

    place: Place
    corruption: str
    severity: int


Task = Prepare | Cell


@dataclass(frozen=True)
class Event:
    """What an engine says of a task: progress (samples so far, accuracy), a result, or an error. Lost: try it again.

    `details` of an error that was not made for users are its traceback.
    """

    task: Task
    samples: int = 0
    accuracy: float = 0.0
    result: Result | None = None
    error: str | None = None
    lost: bool = False
    details: str = ""

    @property
    def final(self) -> bool:
        """Whether the task is over."""
        return self.result is not None or self.error is not None or self.lost or isinstance(self.task, Prepare)


class Engine(Protocol):
    """Where tasks run.

    Attributes:
        slots: tasks that may run at once.
        attempts: how often a task is tried whose process dies: it may be killed by chance, or by the task.
    """

    slots: int
    attempts: int

    def start(self, task: Task) -> None:
        """Run a task; not more at once than there are slots."""

    def events(self, seconds: float) -> Iterator[Event]:
        """Yield what has happened; wait at most `seconds` for news."""

    def close(self) -> None:
        """Stop everything."""


def perform(lab: Lab, task: Task, say: Callable[[Event], None]) -> None:
    """Do one task and say how it goes; an error is said, not raised."""
    try:
        if isinstance(task, Prepare):
            lab.images(task.place, task.corruption, task.severity)
            return say(Event(task))
        last_report = 0.0

        def on_batch(size: int, metrics: Metrics) -> None:
            nonlocal last_report
            if time.monotonic() - last_report >= REPORT_EVERY:
                last_report = time.monotonic()
                say(Event(task, metrics.samples, metrics.accuracy))

        return say(Event(task, result=lab.run(task, on_batch)))
    except BrokenPipeError:
        raise  # nobody listens
    except Exception as error:
        return say(failure(task, error))


def failure(task: Task, error: Exception) -> Event:
    """Return what an engine says of a task that raised an error."""
    details = "" if isinstance(error, DeltaError) else "".join(traceback.format_exception(error))
    return Event(task, error=in_words(error), details=details)


def in_words(error: Exception) -> str:
    """Return what a user should read of an error: of one not made for users, also its kind and place."""
    if isinstance(error, DeltaError):
        return str(error)
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Inline:
    """No other process: tasks run where they are started. For debugging, and where there is little to do."""

    slots = 1
    attempts = 1

    def __init__(self, cache: Path) -> None:
        self._lab = Lab(cache)
        self._said: list[Event] = []

    def start(self, task: Task) -> None:
        """Run a task to its end."""
        perform(self._lab, task, self._said.append)

    def events(self, seconds: float) -> Iterator[Event]:
        """Yield what has happened."""
        said, self._said = self._said, []
        yield from said

    def close(self) -> None:
        """Nothing is left running."""


class Workers:
    """Processes on this machine.

    Args:
        cache: folder of the corrupted images.
        workers: how many; None takes one a core (one a GPU where there are any).
        threads: of torch, each; None shares the cores. Many processes of one thread are the fastest way to many cells:
            `benchmarks/engine.py`.
    """

    attempts = 2

    def __init__(self, cache: Path, workers: int | None = None, threads: int | None = None) -> None:
        self.slots = workers or torch.cuda.device_count() or cores()
        self.threads = threads or max(1, cores() // self.slots)
        self._cache = cache
        self._all = [_Worker(number, cache, self.threads) for number in range(self.slots)]

    def start(self, task: Task) -> None:
        """Give a task to an idle worker."""
        next(worker for worker in self._all if worker.task is None).give(task)

    def events(self, seconds: float) -> Iterator[Event]:
        """Yield what the workers say; the task of one that died is lost, and another worker takes its place."""
        busy = [worker for worker in self._all if worker.task is not None]
        ready = wait([worker.pipe for worker in busy], seconds)
        for worker in (worker for worker in busy if worker.pipe in ready):
            try:
                while worker.pipe.poll():
                    event: Event = worker.pipe.recv()
                    if event.final:
                        worker.task = None
                    yield event
            except (EOFError, OSError):  # it died
                task = worker.task
                worker.stop()
                self._all[worker.number] = _Worker(worker.number, self._cache, self.threads)
                if task is not None:
                    yield Event(task, lost=True)

    def close(self) -> None:
        """Stop the workers at once."""
        for worker in self._all:
            worker.stop()


class _Worker:
    """One process, and what it is doing."""

    def __init__(self, number: int, cache: Path, threads: int) -> None:
        context = multiprocessing.get_context("spawn")  # a forked torch may hang
        self.number = number
        self.task: Task | None = None
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_work, args=(theirs, cache, threads, number), name=f"delta-tta worker {number}", daemon=True
        )
        self.process.start()
        theirs.close()

    def give(self, task: Task) -> None:
        self.task = task
        with suppress(BrokenPipeError):  # it has died: `events` will notice
            self.pipe.send(task)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _work(pipe: Connection, cache: Path, threads: int, number: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the master decides
    torch.set_num_threads(threads)
    keep_freed_memory()
    if torch.cuda.is_available():
        torch.cuda.set_device(number % torch.cuda.device_count())
    lab = Lab(cache)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the master is gone: so are we
        while True:
            perform(lab, pipe.recv(), pipe.send)
