"""Pieces of work, done in several processes."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import Any

Job = tuple[int, Callable[..., None], tuple[Any, ...]]
"""(corrupted images it makes, function, arguments)"""


def in_parallel(jobs: Sequence[Job], workers: int) -> Iterator[int]:
    """Run the jobs in processes; yield the size of each when it is done."""
    if workers == 1 or len(jobs) <= 1:
        for size, function, arguments in jobs:
            function(*arguments)
            yield size
        return
    # Spawned, not forked: torch and OpenCV have threads that do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), context, _one_thread) as pool:
        waiting = {pool.submit(function, *arguments): size for size, function, arguments in jobs}
        try:
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    future.result()
                    yield waiting.pop(future)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _one_thread() -> None:
    import cv2

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the master decides
    cv2.setNumThreads(1)  # the processes share the cores already
