"""What `delta-tta` can do, one file a command; a new command is a function, its examples, and one line here."""

from __future__ import annotations

from collections.abc import Callable

import typer

from . import compare, corrupt, demo, export, methods, report, reproduce, run, serve, train, tune
from .app import Command, Program, program

COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "demo": (demo.demo, demo.EXAMPLES),
    "compare": (compare.compare, compare.EXAMPLES),
    "run": (run.run, run.EXAMPLES),
    "reproduce": (reproduce.reproduce, reproduce.EXAMPLES),
    "report": (report.report, report.EXAMPLES),
    "tune": (tune.tune, tune.EXAMPLES),
    "train": (train.train, train.EXAMPLES),
    "serve": (serve.serve, serve.EXAMPLES),
    "corrupt": (corrupt.corrupt, corrupt.EXAMPLES),
    "export": (export.export, export.EXAMPLES),
    "methods": (methods.methods, methods.EXAMPLES),
}

app = typer.Typer(
    name="delta-tta",
    cls=Program,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.callback()(program)
for _name, (_function, _examples) in COMMANDS.items():
    app.command(_name, cls=Command, epilog=_examples)(_function)

__all__ = ["COMMANDS", "app"]
