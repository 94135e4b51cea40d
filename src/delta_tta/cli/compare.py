"""delta-tta demo, delta-tta compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from ..adapt import RECOMMENDED
from ..data.cifar import CIFAR10_CLASSES
from ..experiments.evaluate import Result
from ..experiments.experiment import SCENARIOS, Cell, Experiment, Place, scenarios
from ..experiments.runner import Tally, default_cache
from ..report.figures import accuracy_over_stream
from ..report.page import write_page
from ..report.runs import exhibits_of
from ..report.shown import Report
from ..report.tables import markdown as as_markdown
from ..report.tables import mean_over_data
from ..report.terminal import accuracy_table
from . import completion as completion
from .compare_stores import show_differences
from .console import Json, consoles, print_json, say
from .execution import WorkersOption, engine_maker, execute, finish
from .keep import kept_store
from .options import Mean, Scenarios, Std, clean_kind

CORRUPTION = "motion_blur"
"""Unless another is asked for: severe, and yet Source is well above chance, so that harm can be seen."""
DEMO_METHODS = ("source", "bn", "tent", "tent+delta", RECOMMENDED)
"""The paper's point, and what `adapt(model)` does."""
DEMO_EXAMPLES = """
Examples:
  delta-tta demo                                # the point of it all, in two minutes
  delta-tta demo --corruption gaussian_noise    # under another corruption
  delta-tta demo --picture "" --page ""         # the table alone
"""
COMPARE_EXAMPLES = """
Examples:
  delta-tta compare tent tent+tbr tent+dot tent+delta
  delta-tta compare source tent+delta --scenario DS+CB,rho=0.01 -c fog
  delta-tta compare tent tent+delta --model resnet20-cifar100 --clean data/cifar100 --preset cifar100-c
  delta-tta compare before.db after.db          # two stores of results: what changed, cell by cell
"""

Corruption = Annotated[
    str,
    typer.Option(
        "--corruption", "-c", autocompletion=completion.corruption, help="Which corruption; 'none' for clean images."
    ),
]
Corruptions = Annotated[
    list[str] | None,
    typer.Option(
        "--corruption",
        "-c",
        autocompletion=completion.corruption,
        help="Which, 'none' for clean images; repeat for the mean over several. Default: motion_blur.",
    ),
]
Severity = Annotated[int, typer.Option("--severity", "-s", help="1 to 5.")]
BatchSize = Annotated[int, typer.Option("--batch-size", "-b", min=1, help="Images at a time.")]
Seed = Annotated[int, typer.Option(help="Of the streams; the paper names 2020 to 2023.")]
Images = Annotated[
    int | None,
    typer.Option(min=10, help="Only so many of the images: quicker, but short streams hardly show the point."),
]
Picture = Annotated[str, typer.Option(help="PNG of the accuracy over the stream; '' for none.")]
Page = Annotated[str, typer.Option(help="HTML page of the results; '' for none.")]


def demo(
    corruption: Corruption = CORRUPTION,
    severity: Severity = 5,
    batch_size: BatchSize = 64,
    seed: Seed = 2020,
    images: Images = None,
    picture: Picture = "delta-tta-demo.png",
    page: Page = "delta-tta-demo.html",
    workers: WorkersOption = None,
    as_json: Json = False,
) -> None:
    """Show the paper's point on the embedded images: five methods over the four test scenarios, in about two minutes.

    Four of them are as in the paper; the last is ours, what `adapt(model)` does.
    """
    asked = Experiment(
        DEMO_METHODS, Place(images=images), SCENARIOS, (corruption,), (severity,), (batch_size,), (seed,)
    )
    finish(_compare(asked.cells(), workers, Shown(as_json, "", picture, page)))


def compare(
    methods: Annotated[
        list[str],
        typer.Argument(
            autocompletion=completion.method,
            help="Methods, such as tent+delta (see `delta-tta methods`), or two stores.",
        ),
    ],
    model: Annotated[
        str, typer.Option(autocompletion=completion.model, help="See delta_tta.models.load.")
    ] = "resnet20-cifar10",
    weights: Annotated[Path | None, typer.Option(help="A .safetensors file or torch checkpoint.")] = None,
    mean: Mean = None,
    std: Std = None,
    clean: Annotated[
        Path | None, typer.Option(help="Clean CIFAR or folder of images; default: embedded images.")
    ] = None,
    scenario: Scenarios = None,
    corruption: Corruptions = None,
    severity: Severity = 5,
    batch_size: BatchSize = 64,
    preset: Annotated[
        str,
        typer.Option(
            autocompletion=completion.preset, help="The paper's settings for a data set; auto: those of the data."
        ),
    ] = "auto",
    seed: Seed = 2020,
    images: Images = None,
    picture: Picture = "",
    page: Page = "",
    markdown: Annotated[Path | None, typer.Option(help="Write the table as Markdown, too.")] = None,
    workers: WorkersOption = None,
    as_json: Json = False,
) -> None:
    """Compare methods on one model and one data set, corrupted on the fly, over test scenarios; or two stores.

    EATA, which needs images of the training distribution, gets the clean ones. The last results stay in the
    cache; `delta-tta run` keeps them where you say. Of two stores it tells what changed, with a paired test.
    """
    if len(methods) == 2 and all(Path(name).is_file() for name in methods):
        show_differences(Path(methods[0]), Path(methods[1]), as_json)
        return
    kept = str(weights) if weights else None
    place = Place(clean_kind(clean), str(clean) if clean else None, model, kept, preset, images, mean=mean, std=std)
    streams = tuple(scenarios(scenario)) if scenario else SCENARIOS
    names = tuple(corruption or [CORRUPTION])
    experiment = Experiment(tuple(methods), place, streams, names, (severity,), (batch_size,), (seed,))
    finish(_compare(experiment.cells(), workers, Shown(as_json, "", picture, page, markdown)))


@dataclass(frozen=True)
class Shown:
    """How results are shown; the files are '' or None where they are not wanted."""

    as_json: bool
    note: str
    picture: str
    page: str
    markdown: Path | None = None


def _compare(cells: Sequence[Cell], workers: int | None, shown: Shown) -> Tally:
    cache = default_cache()
    with kept_store(cache) as store:
        plan, tally = execute(cells, store, cache, engine_maker("local", cache, workers), kept=False)
        if len(store):
            say(f"Results: {store.path}; `delta-tta report {store.path}` shows them again.")
        keys = plan.keys
        found = {key: result for key, _, result in store.results(plan.cells)}
        done = [cell for cell in cells if keys.get(cell) in found]  # as they were asked for, not as they were finished
        results = [replace(found[keys[cell]], trace=store.trace(keys[cell])) for cell in done]
        if results or shown.as_json:
            try:
                written = _write(done, results, shown) if results else []
            finally:  # whatever is wrong with a file
                _print(done, results, shown)
            for line in written:
                say(line)
    return tally


def _print(cells: Sequence[Cell], results: Sequence[Result], how: Shown) -> None:
    shown, _ = consoles()
    if how.as_json:
        pairs = zip(cells, results, strict=True)
        print_json([{"cell": cell.as_dict(), **result.as_dict()} for cell, result in pairs])
        return
    shown.print(_title(results) + how.note, style="bold", markup=False, highlight=False, soft_wrap=True)
    shown.print(accuracy_table(mean_over_data(results)))
    if any(result.method == "source" for result in results):
        shown.print("▲▼ points against Source on the same stream.", style="dim")


def _write(cells: Sequence[Cell], results: Sequence[Result], how: Shown) -> list[str]:
    """Write the files, before anything is printed: who reads the output may have gone. Return what to say of them."""
    said = []
    if how.markdown is not None:
        how.markdown.write_text(as_markdown(mean_over_data(results)) + "\n", encoding="utf-8")
    if how.picture:
        first = [result for result in results if result.about["data"] == results[0].about["data"]]
        accuracy_over_stream(first, Path(how.picture), _title(first) + how.note)
        said.append(f"Accuracy over the stream: {how.picture}")
    if how.page:
        traces = {cell: result.trace for cell, result in zip(cells, results, strict=True)}
        names = CIFAR10_CLASSES if cells[0].place.data == "demo" else ()
        exhibits = exhibits_of(list(zip(cells, results, strict=True)), traces.get, names)
        title = "Test-time adaptation, compared"
        write_page(Report(title, _title(results) + how.note, tuple(exhibits)), Path(how.page))
        said.append(f"The page: {how.page}")
    return said


def _title(results: Sequence[Result]) -> str:
    """Say on what the results were made."""
    names = list(dict.fromkeys(result.about["data"] for result in results))
    name = names[0] if len(names) == 1 else f"mean over {len(names)}: {'; '.join(names)}"
    about = results[0].about
    return f"{name}; {about['model']} ({about['weights']}); B = {about['batch size']}"
