"""The command `delta-tta`: its process, with clear errors and exit codes from the start."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from ..errors import install

WRONG, INTERRUPTED, TERMINATED = 2, 130, 143


class Terminated(KeyboardInterrupt):
    """SIGTERM came. An interrupt, so that all that tidies up after Ctrl-C does so here."""


def main() -> None:
    """Run the command; its packages come with the extra `cli`."""
    signal.signal(signal.SIGTERM, _terminate)
    _open_streams()
    try:
        try:
            from .commands import app
        except ImportError as error:
            missing = error.name or str(error)
            print(f"delta-tta: the command needs the package {missing}: {install('cli')}", file=sys.stderr)
            sys.exit(WRONG)
        app(prog_name="delta-tta")
    except KeyboardInterrupt as stop:  # before a command has begun, or twice
        sys.exit(TERMINATED if isinstance(stop, Terminated) else INTERRUPTED)


def _open_streams() -> None:
    """Let a standard stream that was closed swallow everything; else the next file that is opened has its number."""
    for name, way in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)  # the workers use it as their standard stream
            setattr(sys, name, os.fdopen(number, way))


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
