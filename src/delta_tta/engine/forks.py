"""Safe os.fork: before a fork, running updates finish, so the child gets a consistent adapter and free locks."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  (who registers later is asked first: an update must still be able to start)
import os
import threading
import time
from typing import Protocol
from weakref import WeakSet

PATIENCE = 10.0
"""Seconds that a fork waits for others; one of them may be waiting for the thread that forks."""


class Forkable(Protocol):
    """What must hold still during a fork."""

    def hold(self, until: float) -> None:
        """Let nobody begin, and wait for those who have, until a time of time.monotonic()."""

    def let_go(self) -> None:
        """Continue in the parent."""

    def begin_anew(self) -> None:
        """Continue in the child, where no other thread is left."""


_all: WeakSet[Forkable] = WeakSet()
_one_at_a_time = threading.RLock()


def register(one: Forkable) -> None:
    """Tell it about forks for as long as it lives."""
    with _one_at_a_time:
        _all.add(one)


def _before() -> None:
    _one_at_a_time.acquire()
    until = time.monotonic() + PATIENCE
    for one in list(_all):
        one.hold(until)


def _in_parent() -> None:
    for one in list(_all):
        one.let_go()
    _one_at_a_time.release()


def _in_child() -> None:
    for one in list(_all):
        one.begin_anew()
    _one_at_a_time.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
