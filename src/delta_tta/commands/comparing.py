"""delta-tta demo, delta-tta compare."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from .. import bench, data, models, recipe
from ..report.figures import accuracy_over_stream
from ..report.tables import markdown as as_markdown
from ..report.tables import mean_over_data
from ..report.terminal import accuracy_table, live
from ..settings import make_settings
from ..streams import StreamSpec
from .shared import clean_images, consoles, scenarios, spoken_errors

CORRUPTION = "motion_blur"
"""Unless another is asked for: severe, and yet Source is well above chance, so that harm can be seen."""
DEMO_METHODS = ("source", "bn", "tent", "tent+delta", "ent-w+delta")
DEMO_EXAMPLES = """
[bold]Examples[/]

delta-tta demo                                the point of it all, in a minute

delta-tta demo --corruption gaussian_noise    under another corruption

delta-tta demo --picture ""                   no picture
"""
COMPARE_EXAMPLES = """
[bold]Examples[/]

delta-tta compare tent tent+tbr tent+dot tent+delta

delta-tta compare source tent+delta --scenario "DS+CB (rho=0.01)" --corruption fog

delta-tta compare tent tent+delta --model resnet20-cifar100 --clean data/cifar100 --preset cifar100-c
"""

Corruption = Annotated[str, typer.Option(help="Which corruption; 'none' for clean images.")]
Corruptions = Annotated[
    list[str] | None,
    typer.Option(help="Which, 'none' for clean images; repeat for the mean over several. Default: motion_blur."),
]
Severity = Annotated[int, typer.Option("--severity", "-s", help="1 to 5.")]
BatchSize = Annotated[int, typer.Option("--batch-size", "-b", min=1, help="Images at a time.")]
Seed = Annotated[int, typer.Option(help="Of the streams; the paper uses 2020 to 2023.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def demo(
    corruption: Corruption = CORRUPTION,
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
        run = Run(models.load("resnet20-cifar10"), data.demo(), DEMO_METHODS, four(seed), batch_size, "cifar10-c")
        _show(run, run.results([corruption], severity), picture, as_json)


def compare(
    methods: Annotated[list[str], typer.Argument(help="Methods, such as tent+delta; see `delta-tta methods`.")],
    model: Annotated[str, typer.Option(help="See delta_tta.models.load.")] = "resnet20-cifar10",
    weights: Annotated[Path | None, typer.Option(help="A .safetensors file or torch checkpoint.")] = None,
    clean: Annotated[
        Path | None, typer.Option(help="Clean CIFAR or folder of images; default: embedded images.")
    ] = None,
    scenario: Annotated[list[str] | None, typer.Option(help="Such as 'DS+CB (rho=0.1)'; repeat for more.")] = None,
    corruption: Corruptions = None,
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
        streams = scenarios(scenario, seed) or four(seed)
        run = Run(models.load(model, weights), clean_images(clean), tuple(methods), streams, batch_size, preset)
        results = run.results(corruption or [CORRUPTION], severity)
        _show(run, results, picture, as_json)
        if markdown is not None:
            markdown.write_text(as_markdown(mean_over_data(results)) + "\n", encoding="utf-8")


def four(seed: int) -> list[StreamSpec]:
    """Return the paper's four scenarios with this seed."""
    return [StreamSpec(s.scenario, s.rho, s.pi, seed) for s in bench.SCENARIOS]


@dataclass(frozen=True)
class Run:
    """Methods × scenarios on one model and one clean set."""

    named: models.NamedModel
    clean: data.ImageSet
    methods: Sequence[str]
    streams: Sequence[StreamSpec]
    batch_size: int
    preset: str

    def results(self, corruptions: Sequence[str], severity: int) -> list[bench.Result]:
        """Run everything, with progress on the side."""
        for method in self.methods:  # before any image is corrupted
            recipe.parse(method)
        make_settings(self.preset, {})
        _, aside = consoles()
        sets = [self._set(name, severity) for name in corruptions]
        total = bench.samples(self.clean, self.streams) * len(self.methods) * len(sets)
        results = []
        with live(aside, total) as watch:
            for images in sets:
                for result in bench.compare(
                    self.named, images, self.methods, self.streams, self.batch_size, self.preset, watch, self.clean
                ):
                    results.append(result)
                    if not aside.is_terminal:
                        share = f"{100 * result.class_mean_accuracy:.1f} % ({result.seconds:.1f} s)"
                        aside.print(f"{images.name}: {result.method} on {result.stream}: {share}", highlight=False)
        return results

    def title(self, results: Sequence[bench.Result]) -> str:
        """Say on what the results were made."""
        names = list(dict.fromkeys(result.about["data"] for result in results))
        name = names[0] if len(names) == 1 else f"mean over {len(names)}: {'; '.join(names)}"
        return f"{name}; {self.named.name} ({self.named.weights}); B = {self.batch_size}"

    def _set(self, corruption: str, severity: int) -> data.ImageSet:
        if corruption == "none":
            return self.clean
        return data.in_memory(data.Corrupted(self.clean, corruption, severity))


def _show(run: Run, results: Sequence[bench.Result], picture: str, as_json: bool) -> None:
    shown, aside = consoles()
    if as_json:
        typer.echo(json.dumps([result.as_dict() for result in results], indent=1, ensure_ascii=False))
    else:
        shown.print(run.title(results), style="bold", highlight=False, soft_wrap=True)
        shown.print(accuracy_table(mean_over_data(results)))
        if any(result.method == "source" for result in results):
            shown.print("▲▼ points against Source on the same stream.", style="dim")
    if picture:
        first = [result for result in results if result.about["data"] == results[0].about["data"]]
        accuracy_over_stream(first, Path(picture), run.title(first))
        aside.print(f"Accuracy over the stream: {picture}", highlight=False)
