"""Delays Ctrl-C and SIGTERM until a critical section ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

Handler = Callable[[int, FrameType | None], object]


class Interrupts:
    """Holds back the first interrupt; whoever is inside asks `came`, tidies up, and calls `leave`.

    A second one is not held back. Threads other than the main one get no signals, so nothing is held there; nor are
    signals that nothing in Python handles.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Handler] = {}
        self._came: int | None = None

    @property
    def came(self) -> bool:
        """Whether an interrupt waits."""
        return self._came is not None

    def leave(self) -> None:
        """Do what the interrupt is to do, such as raise KeyboardInterrupt, if one waits."""
        if self._came is not None:
            number, self._came = self._came, None
            self._handlers[number](number, None)

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Give the signals back; what still waits is done now."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if error is None:
            self.leave()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._came is not None:
            self._handlers[number](number, frame)
        self._came = number
