"""One queue for each adapter: its requests are answered one after the other, or several as one batch."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from .inference import RefusedError

log = logging.getLogger("delta_tta")

MOST_WAITING = 1024
"""Requests in one queue; more are refused."""


@dataclass(frozen=True)
class Batching:
    """How requests become batches: up to `most` samples together, waiting up to `wait` seconds for more.

    `most` = 0: each request is one batch.
    """

    most: int = 0
    wait: float = 0.0


@dataclass(eq=False)
class Job:
    """Samples to answer, or something else to do in turn.

    Attributes:
        samples: the samples; None where `act` is to be called.
        together: requests that agree in it may be answered as one batch; None: alone.
        stream: which stream the samples are of.
        learn: whether the model may learn from them.
        reset: whether to forget the stream before.
        act: called in the worker thread, where there are no samples.
        came: when, by the monotonic clock.
        future: gets the answer.
    """

    samples: Tensor | None
    together: Hashable = None
    stream: str = ""
    learn: bool = True
    reset: bool = False
    act: Callable[[], Any] | None = None
    came: float = field(default_factory=time.monotonic)
    future: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def settle(self, value: Any, error: BaseException | None = None) -> None:
        """Hand over the answer; called from the worker thread."""
        loop = self.future.get_loop()
        with suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(self._settle, value, error)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self.future.done():  # the client went away, or it went wrong behind the answer
            if error is not None and not self.future.cancelled():
                log.error("A batch was answered, and what followed failed", exc_info=error)
            return
        if error is None:
            self.future.set_result(value)
        else:
            self.future.set_exception(error)


class Lane:
    """The queue of one adapter, and the task that empties it."""

    def __init__(self, answer: Callable[[list[Job]], None], batching: Batching, pool: Executor) -> None:
        self._answer, self._batching, self._pool = answer, batching, pool
        self._waiting: deque[Job] = deque()
        self._came = asyncio.Event()
        self._busy = self._closing = False
        self._task = asyncio.create_task(self._work())

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not self._waiting and not self._busy

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def put(self, job: Job) -> asyncio.Future[Any]:
        """Queue a job and return the future of its answer."""
        if self._closing:
            raise RefusedError(503, "The service is stopping; send the request again in a moment.")
        if len(self._waiting) >= MOST_WAITING:
            raise RefusedError(503, f"Already {MOST_WAITING} requests wait; send fewer at once.")
        self._waiting.append(job)
        self._came.set()
        return job.future

    def act(self, task: Callable[[], Any]) -> asyncio.Future[Any]:
        """Queue something else than samples."""
        return self.put(Job(None, act=task))

    async def close(self) -> None:
        """Answer what waits, and end."""
        self._closing = True
        self._came.set()
        await self._task

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._waiting and not self._closing:
                self._came.clear()
                await self._came.wait()
            if not self._waiting:
                return
            self._busy = True
            try:
                jobs = await self._next()
                await loop.run_in_executor(self._pool, self._run, jobs)
            finally:
                self._busy = False

    async def _next(self) -> list[Job]:
        """Return the next job, with those behind it that may be answered together with it."""
        jobs = [self._waiting.popleft()]
        if self._batching.most == 0 or jobs[0].together is None:
            return jobs
        size, until = _size(jobs[0]), jobs[0].came + self._batching.wait
        while True:
            while self._waiting and self._fits(jobs[0], self._waiting[0], size):
                jobs.append(self._waiting.popleft())
                size += _size(jobs[-1])
            left = until - time.monotonic()
            if self._waiting or self._closing or size >= self._batching.most or left <= 0:
                return jobs
            self._came.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._came.wait(), left)

    def _fits(self, first: Job, other: Job, size: int) -> bool:
        return first.together == other.together and size + _size(other) <= self._batching.most

    def _run(self, jobs: list[Job]) -> None:
        try:
            if jobs[0].act is not None:
                jobs[0].settle(jobs[0].act())
            else:
                self._answer(jobs)
        except BaseException as error:  # whatever it is, somebody waits for it
            for job in jobs:
                job.settle(None, error)


def _size(job: Job) -> int:
    return 0 if job.samples is None else len(job.samples)
