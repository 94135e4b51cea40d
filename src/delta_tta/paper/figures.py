"""The paper's figures as definitions, and one more: the accuracy over the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from ..corruptions.constants import TYPES
from ..data.sets import FileSet, ImageSet
from ..experiments.cell import CLEAN
from ..experiments.lab import Lab
from ..experiments.trace import Trace
from ..report.runs import accuracy_along, predictions_per_class
from ..streams import StreamSpec
from .benchmarks import Benchmark
from .spec import Conditions, FigureSpec, GallerySpec, StripsSpec, SweepSpec, TraceSpec, needs_benchmark
from .tables import IS_CB, STUDY, ds_cb, ds_ci, is_ci, method

XY = tuple[list[float], list[float]]
Image = npt.NDArray[np.uint8]
SMOOTH = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)
SCENARIOS = {
    "IS+CB": IS_CB,
    "DS+CB (ρ=0.1)": STUDY,
    "IS+CI (π=0.05)": is_ci(0.05),
    "DS+CI (ρ=0.5, π=0.05)": ds_ci(0.05),
}
CHANNEL = 0
VIDEO = StreamSpec("DS+CI", rho=0.1, pi=0.05)
"""Stands in for video."""
CHAMELEON = "n01694178"
STANDS_IN = needs_benchmark("ytbb-sub", "demo", "cifar100", "cifar100-c", "imagenet-c")


def _one(benchmark: Benchmark, **when: object) -> Conditions:
    """Return conditions of a single stream: one corruption, one seed."""
    first = benchmark.corruptions[0]
    return {"corruptions": (first,), "seeds": benchmark.seeds[:1], "batch": "study", **when}


def _statistics(benchmark: Benchmark) -> tuple[TraceSpec, ...]:
    def values(name: str) -> Callable[[Trace], XY]:
        def of(trace: Trace) -> XY:
            y = trace.batches[name][:, CHANNEL]
            return [float(i + 1) for i in range(len(y))], [float(v) for v in y]

        return of

    def panel(what: str, letter: str, label: str, spec: StreamSpec) -> TraceSpec:
        bn, tema = (_one(benchmark, method=name, scenario=spec, statistics=True) for name in ("bn", "tema"))
        lines = (
            ("batch (BN adapt)", bn, values(f"batch {what}")),
            ("moving average (TBR)", tema, values(f"kept {what}")),
        )
        return TraceSpec(f"{letter}, {label}", "batches", f"{letter} of one channel", lines)

    return tuple(
        panel(what, letter, label, spec)
        for what, letter in (("mean", "μ"), ("std", "σ"))
        for label, spec in (("IS+CB", IS_CB), ("DS+CB", STUDY))
    )


def _counts(benchmark: Benchmark) -> tuple[TraceSpec, ...]:
    names = ("source", "tema", "tent+tbr", "tent+delta")
    clean = _one(benchmark, method="source", scenario=IS_CB, corruptions=(CLEAN,))
    panels = []
    for label, spec in (("IS+CB", IS_CB), ("DS+CB", STUDY)):
        lines = [
            (method(name).label, _one(benchmark, method=name, scenario=spec), predictions_per_class) for name in names
        ]
        if benchmark.has_clean and spec == IS_CB:
            lines.insert(0, ("Source, clean images", clean, predictions_per_class))
        panels.append(TraceSpec(label, "classes, most predicted first", "predictions", tuple(lines)))
    return tuple(panels)


def _over_stream(benchmark: Benchmark) -> tuple[TraceSpec, ...]:
    names = ("source", "bn", "tent", "eta", "lame", "tent+delta", "ent-w+delta")
    return tuple(
        TraceSpec(
            label,
            "samples seen",
            "accuracy of the last eighth, %",
            tuple(
                (method(name).label, _one(benchmark, method=name, scenario=spec, batch=benchmark.batch), accuracy_along)
                for name in names
            ),
        )
        for label, spec in SCENARIOS.items()
    )


def _architectures(benchmark: Benchmark) -> tuple[SweepSpec, ...]:
    points = tuple(
        (float(i), label, {"model": (model, weights), "scenario": IS_CB})
        for i, (label, model, weights) in enumerate(benchmark.architectures)
    )
    names = ("source", "tent", "tent+delta", "ent-w", "ent-w+delta")
    return (SweepSpec("IS+CB", "", points, tuple((method(name).label, {"method": name}) for name in names)),)


def _smoothing(benchmark: Benchmark) -> tuple[SweepSpec, ...]:
    when = {"scenario": ds_cb(0.5), "corruptions": "validation", "seeds": benchmark.seeds[:1]}
    return tuple(
        SweepSpec(
            f"{letter} of {part}",
            letter,
            tuple((float(i), str(value), {**when, "settings": {name: value}}) for i, value in enumerate(SMOOTH)),
            (("TENT+DELTA", {"method": "tent+delta"}),),
        )
        for letter, name, part in (("α", "alpha", "TBR"), ("λ", "lam", "DOT"))
    )


def _initialisation(benchmark: Benchmark) -> tuple[SweepSpec, ...]:
    sizes = (1, 2, 4, 8, 16, 32, 64, 128)
    slow = {"update": "slow", "length": 128}
    when = {"scenario": IS_CB, "seeds": benchmark.seeds[:1]}
    return (
        SweepSpec(
            "TENT+DELTA, IS+CB",
            "B",
            tuple((float(size), str(size), {**when, "batch": size, "settings": slow}) for size in sizes),
            tuple(
                (label, {"method": "tent+delta", "settings": {"init": init}})
                for label, init in (("first", "first"), ("inherit", "inherit"))
            ),
            log_x=True,
        ),
    )


def _severities(benchmark: Benchmark) -> tuple[SweepSpec, ...]:
    when = {"scenario": IS_CB, "batch": "study", "seeds": benchmark.seeds[:1]}
    return (
        SweepSpec(
            "IS+CB",
            "severity",
            tuple((float(level), str(level), {**when, "severity": level}) for level in range(1, 6)),
            tuple((method(name).label, {"method": name}) for name in ("source", "tent", "tent+delta")),
        ),
    )


def _classes(benchmark: Benchmark) -> tuple[TraceSpec, ...]:
    def of(trace: Trace) -> XY:
        made = np.bincount(trace.labels)
        return [float(i + 1) for i in range(len(made))], [float(v) for v in made]

    spec = StreamSpec("natural") if benchmark.name == "ytbb-sub" else VIDEO
    when = {**_one(benchmark, method="source", scenario=spec), "batch": benchmark.batch}
    return (TraceSpec("class distribution", "class", "samples", (("samples", when, of),), mark="bar"),)


def _renditions(benchmark: Benchmark, lab: Lab) -> Iterator[tuple[str, Image]]:
    """Yield the first image of each rendition; in ImageNet-R a file is named rendition_number."""
    images = lab.clean(benchmark.place)
    assert isinstance(images, FileSet)
    wanted = images.labels == _example_class(images)
    shown: dict[str, int] = {}
    for place in np.flatnonzero(wanted).tolist():
        shown.setdefault(images.paths[place].stem.partition("_")[0], place)
    for name, place in sorted(shown.items()):
        yield name.capitalize(), images.take([place])[0]


def _corruptions(benchmark: Benchmark, lab: Lab) -> Iterator[tuple[str, Image]]:
    """Yield the first image of the class under each corruption."""
    for name in TYPES:
        images = lab.described(benchmark.place, name, 5)
        place = int(np.flatnonzero(images.labels == _example_class(images))[0])
        yield name.replace("_", " ").capitalize().replace("Jpeg", "JPEG"), images.take([place])[0]


def _example_class(images: ImageSet) -> int:
    """Return the class the paper shows, the African chameleon of ImageNet; where there is none, the first."""
    return images.classes.index(CHAMELEON) if CHAMELEON in images.classes else int(images.labels.min())


NATURAL = "YTBB-sub itself is shown with `--on ytbb-sub`; elsewhere a dependent, imbalanced stream stands in."
FIGURES = (
    StripsSpec("figure-1", "The four test scenarios", tuple(SCENARIOS.items()), "A bar is a sample, a colour a class."),
    FigureSpec(
        "figure-2",
        "Normalisation statistics over time",
        _statistics,
        "One channel of the first batch norm; DS+CB with ρ = 0.1.",
    ),
    FigureSpec(
        "figure-3",
        "Predictions per class",
        _counts,
        "On the first corruption; DS+CB with ρ = 0.1. Clean images of CIFAR100-C and ImageNet-C: --clean PATH.",
    ),
    FigureSpec(
        "figure-4",
        "Across architectures",
        _architectures,
        "The paper's text does not name its architectures; on ImageNet-C these are five of torchvision's.",
    ),
    FigureSpec("figure-5", "α of TBR and λ of DOT", _smoothing, "On validation corruptions, DS+CB (ρ=0.5)."),
    GallerySpec(
        "figure-6",
        "Renditions of one class",
        _renditions,
        "The first image of each rendition of the African chameleon.",
        needs_benchmark("imagenet-r"),
    ),
    GallerySpec("figure-7", "The 15 corruptions", _corruptions, "Severity 5, on one image."),
    StripsSpec("figure-8a", "A natural stream", (("DS+CI (ρ=0.1, π=0.05)", VIDEO),), NATURAL, STANDS_IN),
    FigureSpec("figure-8b", "Its class distribution", _classes, NATURAL, STANDS_IN),
    FigureSpec("figure-9", "Initialisation of TBR and batch size", _initialisation, "Slow update on each 128 samples."),
    FigureSpec("figure-10", "Severity", _severities),
    FigureSpec(
        "stream",
        "Accuracy over the stream",
        _over_stream,
        "Not a figure of the paper: where along the stream methods gain and lose.",
    ),
)
