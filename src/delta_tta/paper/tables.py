"""The paper's tables 1 to 14 as definitions; those by corruption are in appendix.py."""

from __future__ import annotations

from typing import Any

from ..experiments.cell import CLEAN
from ..streams import StreamSpec
from .benchmarks import SEEDS, four
from .spec import ColumnSpec, Metric, RowSpec, TableSpec, needs_benchmark, needs_clean_images

NAMES = {
    "source": "Source", "tta": "TTA", "bn": "BN adapt", "memo": "MEMO", "eta": "ETA", "lame": "LAME",
    "cotta": "CoTTA", "pl": "PL", "tent": "TENT", "ent-w": "Ent-W", "tema": "BN adapt+TEMA",
}  # fmt: skip
"""Methods as the paper writes them."""

IS_CB = StreamSpec("IS+CB")
STUDY = StreamSpec("DS+CB", rho=0.1)
"""DS+CB of tables 2 and 3 and of figures 2 and 3: the paper does not say which ρ."""


def ds_cb(rho: float) -> StreamSpec:
    """Return DS+CB."""
    return StreamSpec("DS+CB", rho=rho)


def is_ci(pi: float) -> StreamSpec:
    """Return IS+CI."""
    return StreamSpec("IS+CI", pi=pi)


def ds_ci(pi: float) -> StreamSpec:
    """Return DS+CI with ρ = 0.5."""
    return StreamSpec("DS+CI", rho=0.5, pi=pi)


def method(name: str) -> RowSpec:
    """Return the row of a method under the name the paper gives it."""
    first, *parts = name.split("+")
    return RowSpec("+".join([NAMES[first], *(part.upper() for part in parts)]), {"method": name})


def with_delta(name: str) -> tuple[RowSpec, RowSpec]:
    """Return the rows of an objective, and of it with DELTA."""
    base = method(name)
    return base, RowSpec(f"{base.label}+DELTA", {"method": f"{name}+delta"}, base.label)


CONTINUAL = RowSpec("CoTTA*", {"method": "cotta", "order": "continual"})
FIELD = (
    *map(method, ("source", "bn", "eta", "lame", "cotta")), CONTINUAL,
    *with_delta("pl"), *with_delta("tent"), *with_delta("ent-w"),
)  # fmt: skip
"""The rows of tables 5, 6 and 12."""
IID_FIELD = (*FIELD[:1], method("tta"), FIELD[1], method("memo"), *FIELD[2:])
"""The rows of Table 4."""


def small_batches(size: int) -> dict[str, Any]:
    """Return the conditions of Table 11: slow update, and the start that the paper finds better for the batch size."""
    start = "first" if size > 8 else "inherit"
    return {"batch": size, "settings": {"update": "slow", "length": 128, "init": start}}


def columns(scenarios: dict[str, StreamSpec], **when: Any) -> tuple[ColumnSpec, ...]:
    """Return a column for each scenario, named as in the paper's numbers."""
    return tuple(ColumnSpec(name, {"scenario": spec, **when}, paper=name) for name, spec in scenarios.items())


ABLATION = "IS+CB, DS+CB (ρ=0.5), IS+CI (π=0.1), DS+CI (ρ=0.5, π=0.05)."
RIVALS = (
    *(
        RowSpec(f"Div-W ({d})", {"method": "ent-w+tbr+div-w", "settings": {"similarity": d}})
        for d in (0.05, 0.1, 0.2, 0.4)
    ),
    RowSpec("LA", {"method": "ent-w+tbr+la"}),
    *(
        RowSpec(f"KL-div ({text})", {"method": "ent-w+tbr+kl-div", "settings": {"kl_weight": w}})
        for text, w in (("1e2", 1e2), ("1e3", 1e3))
    ),
    RowSpec("Sample-drop", {"method": "ent-w+tbr+sample-drop"}),
    RowSpec("DOT", {"method": "ent-w+delta"}),
)
SOFT = {
    "IS+CB": IS_CB, **{f"DS+CB {rho}": ds_cb(rho) for rho in (1.0, 0.5, 0.1)},
    **{f"IS+CI {pi}": is_ci(pi) for pi in (0.1, 0.05)}, **{f"DS+CI {pi}": ds_ci(pi) for pi in (0.1, 0.05)},
}  # fmt: skip
METRICS: tuple[tuple[str, Metric], ...] = (("STD", "std"), ("R", "range"), ("Acc", "accuracy"))
MIXED = ("demo", "cifar100")

TABLES = (
    TableSpec(
        "table-1",
        "Who gains and who loses against Source, in points",
        (
            *(
                RowSpec(str(spec).rpartition(",")[0], {"scenario": spec})
                for spec in (IS_CB, ds_cb(0.1), is_ci(0.05), ds_ci(0.05))
            ),
        ),
        (
            ColumnSpec("TENT", {"method": "tent"}, metric="over source"),
            ColumnSpec("LAME", {"method": "lame"}, metric="over source"),
            ColumnSpec("DELTA", {"method": "tent+delta"}, metric="over source"),
        ),
        head="Scenario",
        marks_best=False,
        note="The paper prints arrows. TENT: up, down, up, down. LAME: down, up, down, up. DELTA: up in all four.",
    ),
    TableSpec(
        "table-2",
        "Which statistics normalise",
        tuple(map(method, ("source", "bn", "tema", "tent", "tent+tema", "tent+tbr"))),
        columns({"IS+CB": IS_CB, "DS+CB": STUDY}, batch="study"),
        note="DS+CB with ρ = 0.1; the paper does not say which.",
    ),
    TableSpec(
        "table-3",
        "Standard deviation and range of the number of predictions per class, and accuracy, on gaussian noise",
        (*map(method, ("source", "tema", "tent+tbr")), RowSpec("TENT+TBR+DOT", {"method": "tent+delta"})),
        tuple(
            ColumnSpec(
                label,
                {"scenario": spec, "batch": "study", "corruptions": ("gaussian_noise",)},
                scenario,
                f"{scenario} {label}",
                metric,
            )
            for scenario, spec in (("IS+CB", IS_CB), ("DS+CB", STUDY))
            for label, metric in METRICS
        ),
        note="DS+CB with ρ = 0.1; the paper does not say which. STD and R grow with the number of images.",
    ),
    TableSpec(
        "table-4",
        "IS+CB: independent, class-balanced",
        IID_FIELD,
        columns({"IS+CB": IS_CB}),
    ),
    TableSpec(
        "table-5",
        "DS+CB: dependent, class-balanced",
        FIELD,
        tuple(ColumnSpec(f"ρ = {rho}", {"scenario": ds_cb(rho)}, paper=str(rho)) for rho in (1.0, 0.5, 0.1)),
    ),
    TableSpec(
        "table-6",
        "IS+CI and DS+CI (ρ = 0.5): class-imbalanced",
        FIELD,
        tuple(
            ColumnSpec(f"π = {pi}", {"scenario": make(pi)}, scenario, f"{scenario} {pi}")
            for scenario, make in (("IS+CI", is_ci), ("DS+CI", ds_ci))
            for pi in (0.1, 0.05)
        ),
    ),
    TableSpec(
        "table-7",
        "In-distribution: clean test images",
        (*map(method, ("source", "bn")), *with_delta("tent"), *with_delta("ent-w")),
        (ColumnSpec("Accuracy", {"scenario": IS_CB, "corruptions": (CLEAN,)}, paper="Accuracy"),),
        data="CIFAR100",
        why_not=needs_clean_images,
    ),
    TableSpec(
        "table-8",
        "Data sets collected as they are: ImageNet-R and YTBB-sub",
        (*map(method, ("source", "bn", "eta")), *with_delta("tent"), *with_delta("ent-w")),
        (
            ColumnSpec("ImageNet-R", {"scenario": IS_CB}, paper="Acc", only=("imagenet-r",)),
            ColumnSpec("YTBB-sub", {"scenario": StreamSpec("videos")}, paper="Acc", only=("ytbb-sub",)),
            ColumnSpec("mixed corruptions, IS+CI (π=0.05)", {"scenario": is_ci(0.05), "order": "mixed"}, only=MIXED),
            ColumnSpec("DS+CI (ρ=0.1, π=0.05)", {"scenario": StreamSpec("DS+CI", rho=0.1, pi=0.05)}, only=MIXED),
        ),
        note="Without those data sets, streams of the same kind stand in: corruptions mixed together for ImageNet-R's "
        "mixed renditions, a dependent and imbalanced stream for YTBB-sub's videos. The paper's are of other data.",
        why_not=needs_benchmark("imagenet-r", "ytbb-sub", *MIXED),
    ),
    TableSpec(
        "table-9",
        "What TBR and DOT add to TENT",
        (
            method("tent"), method("tent+tbr"), method("tent+dot"),
            RowSpec("TENT+TBR+DOT", {"method": "tent+delta"}, "TENT"),
        ),
        columns(four()),
        note=ABLATION,
    ),
    TableSpec("table-10", "DOT and its rivals, on top of Ent-W+TBR", RIVALS, columns(four()), note=ABLATION),
    TableSpec(
        "table-11",
        "Small batches, with fast inference and slow update",
        tuple(map(method, ("source", "tent", "tent+delta"))),
        tuple(
            ColumnSpec(f"B = {size}", {"scenario": IS_CB, **small_batches(size)}, paper=str(size))
            for size in (128, 16, 8, 1)
        ),
        note="The model is updated on each 128 samples. Up to 8 samples a batch the averages of DELTA start from the "
        "source, above from the first mini-batch, whichever Figure 9 of the paper finds better.",
    ),
    TableSpec(
        "table-12",
        "Extreme cases",
        FIELD,
        columns({"DS+CB (rho=0.01)": ds_cb(0.01), "IS+CI (pi=0.001)": is_ci(0.001)}),
        data="ImageNet-C",
    ),
    TableSpec(
        "table-13",
        "Influence of the seed",
        tuple(
            RowSpec(label, {"corruptions": (name,)})
            for label, name in (("Gauss", "gaussian_noise"), ("Shot", "shot_noise"))
        ),
        tuple(
            ColumnSpec(str(seed), {"method": name, "scenario": IS_CB, "seeds": (seed,)}, label, f"{label} {seed}")
            for label, name in (("TENT", "tent"), ("TENT+DELTA", "tent+delta"))
            for seed in SEEDS
        ),
        head="Data",
        digits=3,
        marks_best=False,
        data="ImageNet-C",
    ),
    TableSpec(
        "table-14",
        "DOT with hard and with soft labels",
        tuple(
            RowSpec(label.capitalize(), {"method": "ent-w+delta", "settings": {"dot": label}})
            for label in ("hard", "soft")
        ),
        columns(SOFT),
        head="DOT",
        data="ImageNet-C",
    ),
)  # fmt: skip
