"""What `delta-tta` can do, one file a command; a new command is a function, its examples, and one line here."""

from __future__ import annotations

from collections.abc import Callable

import typer

from . import compare as compare
from . import corrupt as corrupt
from . import methods as listing
from . import reproduce as reproduce
from . import run as running
from . import train
from . import tune as tuning
from .app import Command, Program, program

COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "demo": (compare.demo, compare.DEMO_EXAMPLES),
    "compare": (compare.compare, compare.COMPARE_EXAMPLES),
    "run": (running.run, running.EXAMPLES),
    "reproduce": (reproduce.reproduce, reproduce.REPRODUCE_EXAMPLES),
    "report": (reproduce.report, reproduce.REPORT_EXAMPLES),
    "tune": (tuning.tune, tuning.EXAMPLES),
    "train": (train.train, train.EXAMPLES),
    "corrupt": (corrupt.corrupt, corrupt.EXAMPLES),
    "methods": (listing.methods, listing.EXAMPLES),
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
