"""Methods side by side: the options that `demo` and `compare` share, and how they run, print and write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from ...data.cifar import CIFAR10_CLASSES
from ...experiments.cell import Cell
from ...experiments.evaluate import Result
from ...experiments.runner import default_cache
from ...files import write_text
from ...report.console import rich_table
from ...report.overview import against_source, overview
from ...report.page import write_page
from ...report.pictures import draw, picture_suffix
from ...report.runs import Run, exhibits_of
from ...report.shown import Figure, Report, Table
from ...report.text import markdown
from .console import consoles, print_json, say
from .execution import engine_maker, execute, finish
from .keep import kept_store

CORRUPTION = "motion_blur"
"""Unless another is asked for: severe, and yet Source is well above chance, so that harm can be seen."""

Severity = Annotated[int, typer.Option("--severity", "-s", help="1 to 5.")]
BatchSize = Annotated[int, typer.Option("--batch-size", "-b", min=1, help="Images at a time.")]
Seed = Annotated[int, typer.Option(help="Of the streams; the paper names 2020 to 2023.")]
Images = Annotated[
    int | None,
    typer.Option(min=10, help="How many of the images: fewer are quicker, but short streams hardly show the point."),
]
Picture = Annotated[str, typer.Option(help="PNG or SVG of the accuracy over the stream; '' for none.")]
Page = Annotated[str, typer.Option(help="HTML page of the results; '' for none.")]


@dataclass(frozen=True)
class Outputs:
    """How results are shown; the files are '' or None where they are not wanted."""

    as_json: bool
    picture: str
    page: str
    markdown: Path | None = None


def run_comparison(cells: Sequence[Cell], workers: int | None, out: Outputs) -> None:
    """Run the cells, and show and write what came of them."""
    if out.picture:
        picture_suffix(Path(out.picture))  # refused now, and not when all has been run
    cache = default_cache()
    with kept_store(cache) as store:
        plan, progress = execute(cells, store, cache, engine_maker("local", cache, workers), kept=False)
        if len(store):
            say(f"Results: {store.path}; `delta-tta report {store.path}` shows them again.")
        keys = plan.keys
        found = {key: result for key, _, result in store.results(plan.cells)}
        done = [cell for cell in cells if keys.get(cell) in found]  # as they were asked for, not as they were finished
        runs = [(cell, replace(found[keys[cell]], trace=store.trace(keys[cell]))) for cell in done]
        if runs or out.as_json:
            try:
                written = _write(runs, out) if runs else []
            finally:  # whatever is wrong with a file
                _print(runs, out.as_json)
            for line in written:
                say(line)
    finish(progress)


def _print(runs: Sequence[Run], as_json: bool) -> None:
    if as_json:
        print_json([{"cell": cell.as_dict(), **result.as_dict()} for cell, result in runs])
        return
    shown, _ = consoles()
    shown.print(_title([result for _, result in runs]), style="bold", markup=False, highlight=False, soft_wrap=True)
    shown.print(rich_table(_table(runs), arrows=True))


def _table(runs: Sequence[Run]) -> Table:
    """Return the only table there is, as the cells are all of one place; its title is printed apart."""
    (table,) = overview(runs)
    against = any(cell.method == "source" for cell, _ in runs)
    note = "▲▼ points against Source on the same stream." if against else ""
    return replace(against_source(table), title="", note=note, head="class-mean accuracy, %")


def _write(runs: Sequence[Run], out: Outputs) -> list[str]:
    """Write the files, before anything is printed: who reads the output may have gone. Return what to say of them."""
    said = []
    if out.markdown is not None:
        write_text(out.markdown, markdown(replace(_table(runs), head="", note=""), arrows=True))
    names = CIFAR10_CLASSES if runs[0][0].place.data == "demo" else ()
    traces = {cell: result.trace for cell, result in runs}
    exhibits = exhibits_of(runs, traces.get, names) if out.picture or out.page else []
    if out.picture:
        first = [result for _, result in runs if result.about["data"] == runs[0][1].about["data"]]
        along = next(one for one in exhibits if isinstance(one, Figure))
        draw(replace(along, title=_title(first)), Path(out.picture))
        said.append(f"Accuracy over the stream: {out.picture}")
    if out.page:
        lead = _title([result for _, result in runs])
        write_page(Report("Test-time adaptation, compared", lead, tuple(exhibits)), Path(out.page))
        said.append(f"The page: {out.page}")
    return said


def _title(results: Sequence[Result]) -> str:
    """Say on what the results were made."""
    names = list(dict.fromkeys(result.about["data"] for result in results))
    name = names[0] if len(names) == 1 else f"mean over {len(names)}: {'; '.join(names)}"
    about = results[0].about
    return f"{name}; {about['model']} ({about['weights']}); B = {about['batch size']}"
