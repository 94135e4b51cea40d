"""delta-tta demo, delta-tta compare."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from .. import bench, data, models
from ..streams import StreamSpec
from .shared import clean_images, consoles, scenarios, spoken_errors

DEMO_METHODS = ("source", "bn", "tent", "tent+delta", "ent-w+delta")
DEMO_EXAMPLES = """
[bold]Examples[/]

delta-tta demo                                the point of it all, in a minute

delta-tta demo --corruption motion_blur       under another corruption

delta-tta demo --picture ""                   no picture
"""
COMPARE_EXAMPLES = """
[bold]Examples[/]

delta-tta compare tent tent+tbr tent+dot tent+delta

delta-tta compare source tent+delta --scenario "DS+CB (rho=0.01)" --corruption fog

delta-tta compare tent tent+delta --model resnet20-cifar100 --clean data/cifar100 --preset cifar100-c
"""

Corruption = Annotated[str, typer.Option(help="Which corruption; 'none' for clean images.")]
Severity = Annotated[int, typer.Option("--severity", "-s", help="1 to 5.")]
BatchSize = Annotated[int, typer.Option("--batch-size", "-b", min=1, help="Images at a time.")]
Seed = Annotated[int, typer.Option(help="Of the streams; the paper uses 2020 to 2023.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def demo(
    corruption: Corruption = "gaussian_noise",
    severity: Severity = 5,
    batch_size: BatchSize = 64,
    seed: Seed = 2020,
    picture: Annotated[
        str, typer.Option(help="PNG of the accuracy over the stream; '' for none.")
    ] = "delta-tta-demo.png",
    as_json: Json = False,
) -> None:
    """Show the paper's point on the embedded images: five methods over the four test scenarios, in about a minute."""
    with spoken_errors():
        streams = [StreamSpec(s.scenario, s.rho, s.pi, seed) for s in bench.SCENARIOS]
        named = models.load("resnet20-cifar10")
        clean = data.demo()
        images = _corrupted(clean, corruption, severity)
        _show(named, images, clean, DEMO_METHODS, streams, batch_size, "cifar10-c", picture, as_json, None)


def compare(
    methods: Annotated[list[str], typer.Argument(help="Methods, such as tent+delta; see `delta-tta methods`.")],
    model: Annotated[str, typer.Option(help="See delta_tta.models.load.")] = "resnet20-cifar10",
    weights: Annotated[Path | None, typer.Option(help="A .safetensors file or torch checkpoint.")] = None,
    clean: Annotated[
        Path | None, typer.Option(help="Clean CIFAR or folder of images; default: embedded images.")
    ] = None,
    scenario: Annotated[list[str] | None, typer.Option(help="Such as 'DS+CB (rho=0.1)'; repeat for more.")] = None,
    corruption: Corruption = "gaussian_noise",
    severity: Severity = 5,
    batch_size: BatchSize = 64,
    preset: Annotated[str, typer.Option(help="The paper's settings for a data set.")] = "cifar10-c",
    seed: Seed = 2020,
    picture: Annotated[str, typer.Option(help="PNG of the accuracy over the stream; '' for none.")] = "",
    markdown: Annotated[Path | None, typer.Option(help="Write the table as Markdown, too.")] = None,
    as_json: Json = False,
) -> None:
    """Compare methods on one model and one data set, corrupted on the fly, over test scenarios.

    EATA, which needs images of the training distribution, gets the clean ones.
    """
    with spoken_errors():
        named = models.load(model, weights)
        originals = clean_images(clean)
        images = _corrupted(originals, corruption, severity)
        streams = scenarios(scenario, seed) or [StreamSpec(s.scenario, s.rho, s.pi, seed) for s in bench.SCENARIOS]
        _show(named, images, originals, methods, streams, batch_size, preset, picture, as_json, markdown)


def _corrupted(clean: data.ImageSet, corruption: str, severity: int) -> data.ImageSet:
    return clean if corruption == "none" else data.in_memory(data.Corrupted(clean, corruption, severity))


def _show(
    named: models.NamedModel,
    images: data.ImageSet,
    clean: data.ImageSet,
    methods: Sequence[str],
    streams: Sequence[StreamSpec],
    batch_size: int,
    preset: str,
    picture: str,
    as_json: bool,
    markdown: Path | None,
) -> None:
    """Run, with progress on the side, and show the results."""
    from ..report import accuracy_over_stream
    from ..report import markdown as as_markdown
    from ..report.terminal import accuracy_table, live

    shown, aside = consoles()
    results = []
    total = bench.samples(images, streams) * len(methods)
    with live(aside, total) as watch:
        for result in bench.compare(named, images, methods, streams, batch_size, preset, watch, clean):
            results.append(result)
            if not aside.is_terminal:
                share = 100 * result.class_mean_accuracy
                aside.print(
                    f"{result.method} on {result.stream}: {share:.1f} % ({result.seconds:.1f} s)", highlight=False
                )
    title = f"{images.name}; {named.name} ({named.weights}); B = {batch_size}"
    if as_json:
        typer.echo(json.dumps([result.as_dict() for result in results], indent=1, ensure_ascii=False))
    else:
        shown.print(title, style="bold", highlight=False, soft_wrap=True)
        shown.print(accuracy_table(results))
        if any(result.method == "source" for result in results):
            shown.print("▲▼ points against Source on the same stream.", style="dim")
    if markdown is not None:
        markdown.write_text(as_markdown(results) + "\n", encoding="utf-8")
    if picture:
        accuracy_over_stream(results, Path(picture), title)
        aside.print(f"Accuracy over the stream: {picture}", highlight=False)
