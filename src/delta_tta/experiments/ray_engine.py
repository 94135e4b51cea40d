"""The Ray engine: cells spread over a cluster. Images and weights go to each node once, results come back to one store.

The driver reads data and models; the nodes need neither, only delta-tta (image files of a large set are the exception:
they are read where the cell runs, so they must lie on a disk that all nodes see).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import models
from ..data.derived import Corrupted, in_memory
from ..data.sets import ArraySet, ImageSet
from ..errors import SettingError, install
from ..streams import DomainStream, Stream
from .allocator import keep_freed_memory
from .cell import CLEAN, Cell
from .lab import Lab, needs_source, run_cell
from .local_engine import Event, Prepare, Task, failure
from .place import Place

WHERE = tuple[Place, str, int]


class RayEngine:
    """Tasks on a Ray cluster.

    Args:
        cache: folder of the corrupted images, for this process alone.
        address: of the cluster: "auto", "ray://host:10001", …; None starts one on this machine.
        cpus: that a cell takes; its torch uses as many threads.
        gpus: that a cell takes; a fraction shares one.
    """

    attempts = 5  # nodes come and go

    def __init__(self, cache: Path, address: str | None = None, cpus: float = 1, gpus: float = 0) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody unless asked for
        try:
            import ray
        except ImportError as error:
            raise ImportError(f"The Ray engine needs Ray: {install('scale')}.") from error
        self._ray = ray
        self._mine = not ray.is_initialized()
        if self._mine:
            # "local", or Ray would look for a cluster in the environment and send data and weights there
            board = False if address is None else None
            ray.init(address=address or "local", log_to_driver=False, include_dashboard=board)
        self._lab = Lab(cache)
        self._sets: dict[WHERE, Any] = {}
        self._models: dict[tuple[object, ...], Any] = {}
        self._running: dict[Any, Task] = {}
        self._kind = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(_perform)  # the runner tries again
        self._make = ray.remote(num_cpus=cpus)(_make)
        self._threads = max(1, int(cpus))
        self.slots = self._slots(cpus, gpus)

    def _slots(self, cpus: float, gpus: float) -> int:
        there = self._ray.cluster_resources()  # type: ignore[no-untyped-call]  # Ray does not type it
        slots = int(there.get("CPU", 0) // cpus) if cpus else 10**6
        slots = min(slots, int(there.get("GPU", 0) // gpus)) if gpus else slots
        if slots < 1:
            raise SettingError(
                f"Expected a cluster with {cpus:g} CPUs and {gpus:g} GPUs for a cell, but it has "
                f"{there.get('CPU', 0):g} and {there.get('GPU', 0):g}."
            )
        return slots

    def start(self, task: Task) -> None:
        """Give a task to the cluster."""
        if isinstance(task, Prepare):
            self._running[self._shared((task.place, task.corruption, task.severity))] = task
            return
        where = [(task.place, name, task.severity) for name in task.corruptions]
        clean = self._shared((task.place, CLEAN, task.severity)) if needs_source(task) else None
        model = (task.place.model, task.place.weights, task.place.mean, task.place.std)
        if model not in self._models:
            self._models[model] = self._ray.put(self._lab.model(task.place))
        lab, sets = self._lab, [self._shared(one) for one in where]
        # references inside a list stay references, so that a worker can keep what it has fetched before
        handed = [self._models[model]], sets, [clean]
        # by position: Ray's types know no keywords
        call = self._kind.remote(task, *handed, lab.stream(task), lab.identity(task), self._threads)
        self._running[call] = task

    def _shared(self, where: WHERE) -> Any:
        """Return a reference to images: put there once, or made by the cluster and left where it was made."""
        if where not in self._sets:
            found = self._lab.described(*where)
            if isinstance(found, Corrupted):
                clean = self._shared((where[0], CLEAN, where[2]))
                self._sets[where] = self._make.remote(clean, found.corruption, found.severity, found.seed)
            else:
                if isinstance(found, ArraySet) and isinstance(found.images, np.memmap):
                    # a mapped file would be copied for each cell
                    found = _Described(in_memory(found), found.describe())
                self._sets[where] = self._ray.put(found)
        return self._sets[where]

    def events(self, seconds: float) -> Iterator[Event]:
        """Yield what has come to an end; a task whose node or process died is lost."""
        if not self._running:
            return
        done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds, fetch_local=False)
        for call in done:
            task = self._running.pop(call)
            if isinstance(task, Prepare):
                yield Event(task)  # what went wrong will be said by its cells
                continue
            try:
                yield self._ray.get(call)
            except self._ray.exceptions.RayError as error:
                cause: BaseException = error
                while isinstance(cause, self._ray.exceptions.RayTaskError):
                    cause = cause.cause
                if isinstance(cause, self._ray.exceptions.RayError):
                    self._forget(task)
                    yield Event(task, lost=True)
                else:
                    yield Event(task, error=str(cause))

    def _forget(self, task: Cell) -> None:
        """Let the images of a cell be made or put again: they may have gone with a node."""
        for name in (*task.corruptions, CLEAN):
            self._sets.pop((task.place, name, task.severity), None)

    def close(self) -> None:
        """Cancel what runs; leave a cluster that was there before alone."""
        for call in self._running:
            self._ray.cancel(call, force=True)
        self._running.clear()
        if self._mine:
            self._ray.shutdown()


def _make(clean: ImageSet, corruption: str, severity: int, seed: int) -> ImageSet:
    """Make the images of a corruption, on whichever node; they stay in its memory and go from there to others."""
    made = Corrupted(clean, corruption, severity, seed=seed)
    kept = in_memory(made)
    return _Described(kept, made.describe())


class _Described(ArraySet):
    """Images that came from another process, with what is to be said of them."""

    def __init__(self, images: ArraySet, about: Mapping[str, Any]) -> None:
        super().__init__(images.name, images.images, images.labels, images.classes)
        self.outputs, self.about = images.outputs, dict(about)

    def describe(self) -> dict[str, Any]:
        """Return what a result must say about its data."""
        return self.about


@functools.lru_cache(maxsize=4)
def _fetched(reference: Any) -> Any:
    """Return an object of the cluster; a model is unpacked once a process, images are not copied at all."""
    import ray

    return ray.get(reference)


def _perform(
    cell: Cell,
    model: list[Any],
    sets: list[Any],
    clean: list[Any],
    order: Stream | DomainStream,
    identity: Mapping[str, Any],
    threads: int,
) -> Event:
    """Run a cell on a node; an error of the cell is returned, not raised."""
    import ray

    torch.set_num_threads(threads)
    keep_freed_memory()
    try:
        named: models.NamedModel = _fetched(model[0])
        images = [ray.get(one) for one in sets]
        source = ray.get(clean[0]) if clean[0] is not None else None
        return Event(cell, result=run_cell(cell, named, images, order, source=source, identity=identity))
    except ray.exceptions.RayError:
        raise  # a node was lost with what it held
    except Exception as error:
        return failure(cell, error)
