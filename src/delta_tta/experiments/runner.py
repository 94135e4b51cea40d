"""Runs the cells that a store lacks. A failed cell does not stop the others."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .. import recipe
from .cell import CLEAN, Cell
from .lab import Lab
from .local_engine import Engine, Event, Prepare, Task
from .store import Store

HEARTBEAT = 10.0
log = logging.getLogger("delta_tta")


@dataclass
class Plan:
    """Cells to run, and their keys in a store; what is wrong with a cell is known before anything runs.

    Attributes:
        cells: one for each key: several cells may describe the same run.
        samples: of each key's stream.
        keys: of all cells.
    """

    cells: dict[str, Cell]
    samples: dict[str, int]
    keys: dict[Cell, str]

    @classmethod
    def of(cls, cells: Sequence[Cell], lab: Lab) -> Plan:
        """Look at the data and the models of all cells."""
        keys = {cell: lab.key(cell) for cell in cells}
        first = {key: cell for cell, key in reversed(keys.items())}
        first = {key: first[key] for key in dict.fromkeys(keys.values())}
        return cls(first, {key: len(lab.stream(cell)) for key, cell in first.items()}, keys)

    def work(self, key: str) -> float:
        """Return the cost of a cell, in samples of plain eval."""
        return self.samples[key] * passes(self.cells[key])


@dataclass
class RunProgress:
    """How far a run has come; `work` is in samples of plain eval."""

    total: int
    work: float
    found: int = 0
    done: int = 0
    worked: float = 0.0
    running: dict[str, Event] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    last: tuple[Cell, Event] | None = None


def passes(cell: Cell) -> float:
    """Return about how many times the cost of plain eval a sample has."""
    method = recipe.parse(cell.method)
    declared = max(one.cost for one in method.classes)
    if declared:
        return float(declared)
    settings = cell.spelled_out
    if method.objective is None:
        return 1.3
    window = settings.length / cell.batch_size if settings.update == "window" else 1
    return 3.5 * max(window, 1) * (1 + 16 / cell.batch_size)  # small batches are dear


def run(
    plan: Plan, store: Store, engine: Engine, on_progress: Callable[[RunProgress], None] | None = None
) -> RunProgress:
    """Run what is missing; raises only what stops everything, such as Ctrl-C or a full disk."""
    show = on_progress or (lambda progress: None)
    found = store.done(list(plan.cells))
    keys = {cell: key for key, cell in plan.cells.items()}
    missing = [key for key in plan.cells if key not in found]
    progress = RunProgress(len(plan.cells), sum(map(plan.work, missing)), len(found), len(found))
    show(progress)
    images = dict.fromkeys(
        Prepare(cell.place, name, cell.severity)
        for cell in map(plan.cells.__getitem__, missing)
        for name in cell.corruptions
        if name != CLEAN and cell.place.data in ("demo", "cifar", "folder")
    )
    waiting: deque[Task] = deque([*images, *map(plan.cells.__getitem__, missing)])
    elsewhere: deque[Cell] = deque()  # another run has them
    attempts: dict[Task, int] = {}
    making, busy, beat = set(images), 0, time.monotonic()
    try:
        while waiting or elsewhere or busy:
            while busy < engine.slots and waiting:
                task = waiting[0]
                if isinstance(task, Cell) and making & _needed(task):
                    break  # its images are being made
                waiting.popleft()
                if isinstance(task, Cell) and not store.claim(keys[task]):
                    elsewhere.append(task)
                    continue
                engine.start(task)
                busy += 1
            for event in engine.events(0.5 if busy else 0):
                busy -= event.final
                if isinstance(event.task, Prepare):
                    making.discard(event.task)  # an error comes again with the cells
                else:
                    _take(event, keys[event.task], plan, store, progress)
                if event.lost:
                    attempts[event.task] = attempts.get(event.task, 0) + 1
                    if attempts[event.task] < engine.attempts:
                        waiting.appendleft(event.task)
                    elif isinstance(event.task, Cell):
                        progress.failed[keys[event.task]] = "its process died (out of memory?)"
                show(progress)
            if not busy and not waiting and elsewhere:
                _look_elsewhere(elsewhere, waiting, keys, store, plan, progress)
                show(progress)
            if time.monotonic() - beat > HEARTBEAT:
                store.beat()
                beat = time.monotonic()
    finally:
        engine.close()
        store.release()
    return progress


def _take(event: Event, key: str, plan: Plan, store: Store, progress: RunProgress) -> None:
    cell = plan.cells[key]
    if not event.final:
        progress.running[key] = event
        return
    progress.running.pop(key, None)
    if event.result is not None:
        store.record(key, cell, event.result)
        progress.done += 1
        progress.worked += plan.work(key)
        progress.last = (cell, event)
    else:
        store.release(key)
        if event.error is not None:
            progress.failed[key] = event.error
            log.debug("%s failed: %s\n%s", cell, event.error, event.details)


def _look_elsewhere(
    elsewhere: deque[Cell], waiting: deque[Task], keys: dict[Cell, str], store: Store, plan: Plan, progress: RunProgress
) -> None:
    """See what another run has finished, and try to take what it has left."""
    time.sleep(0.5)
    for _ in range(len(elsewhere)):
        cell = elsewhere.popleft()
        if store.done([keys[cell]]):
            progress.done += 1
            progress.worked += plan.work(keys[cell])
        else:
            waiting.append(cell)  # claimed, or put back, in the next round


def _needed(cell: Cell) -> set[Prepare]:
    return {Prepare(cell.place, name, cell.severity) for name in cell.corruptions}


def default_cache() -> Path:
    """Return where corrupted images are kept unless another place is named."""
    named = os.environ.get("DELTA_TTA_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "delta-tta"
