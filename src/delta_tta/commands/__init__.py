"""What `delta-tta` can do, one file a command."""

from __future__ import annotations

import typer

from . import comparing, corrupting, listing, reproducing, running

app = typer.Typer(
    name="delta-tta",
    help="Keep a trained image classifier accurate while it predicts: DELTA and its rivals for test-time adaptation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("demo", epilog=comparing.DEMO_EXAMPLES)(comparing.demo)
app.command("compare", epilog=comparing.COMPARE_EXAMPLES)(comparing.compare)
app.command("run", epilog=running.EXAMPLES)(running.run)
app.command("reproduce", epilog=reproducing.REPRODUCE_EXAMPLES)(reproducing.reproduce)
app.command("report", epilog=reproducing.REPORT_EXAMPLES)(reproducing.report)
app.command("corrupt", epilog=corrupting.EXAMPLES)(corrupting.corrupt)
app.command("methods")(listing.methods)

__all__ = ["app"]
