"""A run on the terminal: how far, how long, and how accurate what is running is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..experiments.cell import Cell
from ..experiments.runner import Plan, RunProgress


@contextmanager
def run_progress(console: Console, plan: Plan) -> Iterator[Callable[[RunProgress], None]]:
    """Show a run: a bar where the console can move its cursor, else a line a finished cell; give what `run` calls."""
    bar = Progress(
        TextColumn("{task.fields[cells]}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        disable=not console.is_interactive,
        speed_estimate_period=600,
    )
    shown: list[object] = [None]
    with bar:
        task = bar.add_task("", total=None, cells="")

        def on_progress(progress: RunProgress) -> None:
            live = {key: event for key, event in progress.running.items() if key in plan.samples}
            partly = sum(plan.work(key) * event.samples / plan.samples[key] for key, event in live.items())
            words = "  ".join(f"{plan.cells[key].method} {100 * event.accuracy:.1f} %" for key, event in live.items())
            bar.update(
                task,
                total=progress.work,
                completed=progress.worked + partly,
                description=words,
                cells=f"{progress.done}/{progress.total} cells",
            )
            if progress.last is not None and progress.last is not shown[0] and not console.is_interactive:
                cell, event = shown[0] = progress.last
                assert event.result is not None
                console.print(
                    f"{progress.done}/{progress.total} {cell}: {100 * event.result.class_mean_accuracy:.1f} % "
                    f"({event.result.seconds:.1f} s)",
                    markup=False,
                    highlight=False,
                    soft_wrap=True,
                )

        yield on_progress


def failures(tell: Callable[[str], None], plan: Plan, failed: dict[str, str]) -> None:
    """Say which cells failed and why; the same reason once."""
    reasons: dict[str, list[Cell]] = {}
    for key, reason in failed.items():
        reasons.setdefault(reason, []).append(plan.cells[key])
    for reason, cells in reasons.items():
        more = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
        tell(f"failed: {cells[0]}{more}: {reason}")
