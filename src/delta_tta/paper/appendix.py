"""The paper's tables by corruption, 15 to 34, as definitions. They are of seed 2020; their numbers are not at hand."""

from __future__ import annotations

from ..streams import StreamSpec
from .benchmarks import Benchmark
from .spec import ColumnSpec, Rows, RowSpec, TableSpec, WhyNot, counterpart_on, needs_corruptions
from .tables import FIELD, IID_FIELD, IS_CB, STUDY, ds_cb, ds_ci, is_ci, method, with_delta

SEED = {"seeds": (2020,)}
NOTE = "In the layout of the paper's appendix, whose numbers are not at hand."
IMAGENET = ("imagenet-c",)
CIFAR = ("demo", "cifar100", "cifar100-c")
SCENARIOS = (IS_CB, ds_cb(1.0), ds_cb(0.5), ds_cb(0.1), is_ci(0.1), is_ci(0.05), ds_ci(0.1), ds_ci(0.05))
COUNTERPARTS = dict(zip(range(18, 26), (26, *range(28, 35)), strict=True))
"""Tables of the same scenario: of CIFAR100-C, and of ImageNet-C."""


def _table(number: int, title: str, rows: Rows, note: str = "", why_not: WhyNot = needs_corruptions) -> TableSpec:
    """Return a table whose rows say the scenario; the best of its rows would be the best of unlike things."""
    return TableSpec(
        f"table-{number}",
        f"By corruption: {title}",
        rows,
        (ColumnSpec("", SEED),),
        note=f"{NOTE} {note}".strip(),
        by_corruption=True,
        marks_best=False,
        why_not=why_not,
    )


def _of_scenario(number: int, spec: StreamSpec, why_not: WhyNot) -> TableSpec:
    rows = FIELD if spec != IS_CB else IID_FIELD
    title = f"By corruption: {str(spec).rpartition(',')[0]}"
    column = ColumnSpec("", {"scenario": spec, **SEED})
    return TableSpec(f"table-{number}", title, rows, (column,), note=NOTE, by_corruption=True, why_not=why_not)


def _statistics() -> tuple[RowSpec, ...]:
    names = ("source", "bn", "tema", "tent", "tent+tema", "tent+tbr")
    return tuple(
        RowSpec(f"{scenario}: {method(name).label}", {"method": name, "scenario": spec, "batch": "study"})
        for scenario, spec in (("IS+CB", IS_CB), ("DS+CB", STUDY))
        for name in names
    )


def _batch_sizes() -> tuple[RowSpec, ...]:
    rows = [RowSpec("Source", {"method": "source", "scenario": IS_CB, "batch": "study"})]
    for size in (128, 16, 8, 1):
        slow = {"update": "slow", "length": 128}
        when = {"scenario": IS_CB, "batch": size, "settings": slow}
        rows.append(RowSpec(f"TENT, B = {size}", {**when, "method": "tent"}))
        for start in ("first", "inherit"):
            settings = {**slow, "init": start}
            label = f"TENT+DELTA, {start}, B = {size}"
            rows.append(RowSpec(label, {**when, "method": "tent+delta", "settings": settings}))
    return tuple(rows)


def _severities() -> tuple[RowSpec, ...]:
    return tuple(
        RowSpec(
            f"Severity {level}: {method(name).label}",
            {"method": name, "scenario": IS_CB, "severity": level, "batch": "study"},
        )
        for level in range(1, 6)
        for name in ("source", "tent", "tent+delta")
    )


def _architectures(benchmark: Benchmark) -> tuple[RowSpec, ...]:
    lines = (method("source"), *with_delta("tent"), *with_delta("ent-w"))
    return tuple(
        RowSpec(f"{label}: {line.label}", {**line.when, "scenario": IS_CB, "model": (model, weights)})
        for label, model, weights in benchmark.architectures
        for line in lines
    )


APPENDIX = (
    _table(15, "which statistics normalise", _statistics(), "DS+CB with ρ = 0.1; the paper does not say which."),
    _table(16, "batch size and start of the averages", _batch_sizes(), "The model is updated on each 128 samples."),
    _table(17, "severity", _severities()),
    *(
        _of_scenario(n, spec, counterpart_on(CIFAR, f"table-{COUNTERPARTS[n]}"))
        for n, spec in zip(COUNTERPARTS, SCENARIOS, strict=True)
    ),
    _of_scenario(26, IS_CB, counterpart_on(IMAGENET, "table-18")),
    _table(
        27,
        "architectures, IS+CB",
        _architectures,
        "Its architectures are not named in the text; these are five of torchvision's.",
        counterpart_on(IMAGENET, "figure-4"),
    ),
    *(
        _of_scenario(COUNTERPARTS[n], spec, counterpart_on(IMAGENET, f"table-{n}"))
        for n, spec in zip(range(19, 26), SCENARIOS[1:], strict=True)
    ),
)
