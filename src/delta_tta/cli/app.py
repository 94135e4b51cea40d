"""The program around the commands: the options that all have, help that ends with examples, errors in one line."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer import rich_utils
from typer.core import TyperCommand, TyperGroup

from .. import __version__
from ..removed import removed
from .support.console import VERBOSITY, Verbosity, clean_errors, plain
from .support.encoding import lenient

EVERYWHERE = ("--quiet", "-q", "--verbose", "-v")
EXAMPLES = """
Exit codes:
  0    everything was done
  1    the work failed: a cell, a full disk, something unexpected
  2    wrong usage: an option, a name, a file that is missing or cannot be read
  130  interrupted by Ctrl-C; 143 by SIGTERM

Completion:
  --install-completion lets the shell complete methods, scenarios, corruptions, tables and figures with Tab

Examples:
  delta-tta demo                                     # the point of it all, in two minutes
  delta-tta compare tent tent+delta --corruption fog
  delta-tta --quiet compare tent tent+delta --json   # for a program; --quiet may also stand at the end
  delta-tta reproduce --list                         # the paper's tables and figures
"""


class Command(TyperCommand):
    """A command whose errors are one line and an exit code; typer's epilog is printed unchanged."""

    def __init__(self, *args: Any, epilog: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = epilog or ""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options; one that is gone says what to do instead."""
        gone = removed(self.name or "", (one.partition("=")[0] for one in args))
        if gone is not None:
            raise typer.BadParameter(gone)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help, then the examples: typer would wrap them, and they could not be copied."""
        super().format_help(ctx, formatter)
        typer.echo(f"Everywhere: --quiet, --verbose; `delta-tta --help` explains them.\n{self.examples.rstrip()}")

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        with clean_errors():
            return super().invoke(ctx)


class Program(TyperGroup):
    """The group of all commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """As `Command` does."""
        super().format_help(ctx, formatter)
        typer.echo(EXAMPLES.strip())

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run it, with help and usage errors in the colours of everything else."""
        lenient()
        rich_utils.COLOR_SYSTEM = None if plain() else "auto"
        return super().main(*args, **kwargs)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options; the common ones may also stand behind the command."""
        end = args.index("--") if "--" in args else len(args)
        ours = [one for one in args[:end] if one in EVERYWHERE]
        others = [one for one in args[:end] if one not in EVERYWHERE]
        return super().parse_args(ctx, [*ours, *others, *args[end:]])


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"delta-tta {__version__}")
        raise typer.Exit


def program(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Results and errors only.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="The log, and tracebacks of unexpected errors.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Keep a trained image classifier accurate while it predicts: DELTA and its rivals for test-time adaptation."""
    if quiet and verbose:
        raise typer.BadParameter("expected one of them, but got both", param_hint="--quiet, --verbose")
    VERBOSITY.set(Verbosity(quiet, verbose))
