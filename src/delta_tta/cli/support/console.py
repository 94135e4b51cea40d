"""How every command behaves: what it says where and in which colour, and with which exit code it ends."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console

from ...errors import DeltaError
from ...experiments.local_engine import in_words
from ...files import json_safe
from .. import INTERRUPTED, TERMINATED, WRONG, Terminated

FAILED = 1
log = logging.getLogger("delta_tta")

Json = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON; nothing else goes to the standard output.")
]


@dataclass(frozen=True)
class Verbosity:
    """What the user asked for: only results and errors, or all the details."""

    quiet: bool = False
    verbose: bool = False


VERBOSITY: ContextVar[Verbosity] = ContextVar("VERBOSITY", default=Verbosity())  # noqa: B039  (it is frozen)
"""Of the command that runs now."""


def consoles() -> tuple[Console, Console]:
    """Return (for results, for progress and messages); the second says nothing when quiet was asked for."""
    return _console(stderr=False), _console(stderr=True, quiet=VERBOSITY.get().quiet)


def plain() -> bool:
    """Whether the user wants no escape codes at all, not even on a terminal."""
    return bool(os.environ.get("NO_COLOR"))


def _console(stderr: bool, quiet: bool = False) -> Console:
    """Return a console with colour on a terminal or with FORCE_COLOR; it moves the cursor on a terminal only."""
    own = sys.stderr if stderr else sys.stdout
    live = own.isatty() and not plain() and not VERBOSITY.get().verbose  # lines of a log would tear a progress bar
    return Console(stderr=stderr, quiet=quiet, color_system=None if plain() else "auto", force_interactive=live)


def say(text: str) -> None:
    """Tell something that is not the result."""
    consoles()[1].print(text, markup=False, highlight=False, soft_wrap=True)


def complain(text: str) -> None:
    """Tell an error, in one line, however quiet the user wants it."""
    _console(stderr=True).print(text, style="red", markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print the result for machines: plain ASCII, and null where there is no number."""
    typer.echo(json.dumps(json_safe(value), indent=1, allow_nan=False))


@contextmanager
def clean_errors() -> Iterator[None]:
    """Turn every exception into one line and an exit code."""
    try:
        with _logging():
            yield
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except KeyboardInterrupt as stop:
        told = isinstance(stop, Terminated)
        complain(f"delta-tta: {'told to end' if told else 'interrupted'}.")
        raise typer.Exit(TERMINATED if told else INTERRUPTED) from None
    except (DeltaError, ImportError) as error:
        complain(f"delta-tta: {error}")
        raise typer.Exit(WRONG) from None
    except OSError as error:  # a full disk, a folder that may not be written
        complain(f"delta-tta: {error}")
        raise typer.Exit(FAILED) from None
    except Exception as error:
        if VERBOSITY.get().verbose:
            traceback.print_exc()
        hint = "" if VERBOSITY.get().verbose else "; run with --verbose to see the traceback."
        complain(f"delta-tta: unexpected {' '.join(in_words(error).split())}{hint}")
        raise typer.Exit(FAILED) from None


@contextmanager
def _logging() -> Iterator[None]:
    """Show the log of the package as the user asked for; without a wish, Python shows warnings."""
    verbosity, level, handler = VERBOSITY.get(), log.level, logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    if verbosity.verbose:
        log.addHandler(handler)
    if verbosity.verbose or verbosity.quiet:
        log.setLevel(logging.DEBUG if verbosity.verbose else logging.ERROR)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
