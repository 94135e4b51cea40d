"""Numbers of an exhibit from the results of a store."""

import dataclasses
import json
import statistics
from importlib import resources

import numpy as np
import pytest

from delta_tta import data
from delta_tta.errors import SettingError
from delta_tta.experiments import Store, Trace
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.runner import Plan
from delta_tta.paper import EXHIBITS, ResultIndex, exhibit
from delta_tta.paper import benchmark as benchmark
from delta_tta.paper.spec import StripsSpec, TableSpec, merged
from delta_tta.report.shown import Figure, Strips, Table
from delta_tta.streams import StreamSpec
from laboratory import result

IS_CB = StreamSpec("IS+CB")


TABLES = [spec for spec in EXHIBITS.values() if isinstance(spec, TableSpec)]
PAPER = json.loads(resources.files("delta_tta.paper").joinpath("paper.json").read_text(encoding="utf-8"))


@pytest.fixture
def demo():
    return benchmark("demo")


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite") as opened:
        yield opened


def put(store, where, when, value, **changes):
    """Record made-up results for all cells of some conditions; `value` is a function of the cell, in percent."""
    for cell in where.cells(when):
        own = {"accuracy": value(cell) / 100, **{k: v(cell) if callable(v) else v for k, v in changes.items()}}
        store.record(f"{len(store)}", cell, result(**own))


def numbers(table):
    """Row → numbers."""
    return {row.label: row.numbers for row in table.rows}


def fifty_or_seventy(one):
    return 70 if one.corruptions[0] == "motion_blur" else 50


def test_cotta_star_by_corruption_is_the_continual_run(tmp_path):
    where = benchmark("demo")
    spec = EXHIBITS["table-18"]
    with Store(tmp_path / "s") as store:
        when = {"method": "cotta", "order": "continual", "scenario": IS_CB, "seeds": (2020,)}
        domains = {"gaussian_noise": 0.2, "motion_blur": 0.4}
        put(store, where, when, lambda c: 99, domains=domains, stream="continual over …")
        row = numbers(exhibit(spec, ResultIndex(store, where)))["CoTTA*"]
        assert [n and n.mean for n in row] == pytest.approx([20, 40, 30])


@pytest.mark.parametrize("change", ["images", "severity of clean images", "seed of the natural order"])
def test_what_was_found_by_key_is_shown(change, tmp_path):
    lab = Lab(tmp_path / "cache")
    where = benchmark("demo")
    when = {"method": "source", "scenario": IS_CB, "seeds": (2020,), "corruptions": ("none",)}
    (wanted,) = where.cells(when)
    if change == "images":
        kept = dataclasses.replace(wanted, place=dataclasses.replace(wanted.place, images=2000))
    elif change == "severity of clean images":
        kept = dataclasses.replace(wanted, severity=1)
    else:
        wanted = dataclasses.replace(wanted, stream=StreamSpec("natural", seed=2021))
        kept = dataclasses.replace(wanted, stream=StreamSpec("natural"))
    assert lab.key(kept) == lab.key(wanted)
    with Store(tmp_path / "s") as store:
        store.record(lab.key(kept), kept, result())
        assert store.done([lab.key(wanted)])  # it will not be run
        assert ResultIndex(store, where, Plan.of([wanted], lab).keys).result(wanted) is not None


def test_points_over_a_source_that_is_half_done_are_not_final(tmp_path):
    where = benchmark("demo")
    spec = EXHIBITS["table-1"]
    with Store(tmp_path / "s") as store:
        put(store, where, {**spec.rows[0].when, "method": "tent"}, fifty_or_seventy)
        put(store, where, {**spec.rows[0].when, "method": "source", "corruptions": ("gaussian_noise",)}, lambda c: 40)
        number = numbers(exhibit(spec, ResultIndex(store, where)))["IS+CB"][0]
        assert number.mean == pytest.approx(10)  # over the half that both have
        assert (number.runs, number.of) == (2, 4)


def test_a_gain_is_over_the_same_runs(tmp_path):
    where = benchmark("demo")
    spec = EXHIBITS["table-4"]
    when = spec.columns[0].when
    with Store(tmp_path / "s") as store:
        put(store, where, merged(when, {"method": "tent+delta"}), fifty_or_seventy)
        put(store, where, merged(when, {"method": "tent", "corruptions": ("gaussian_noise",)}), lambda c: 45)
        number = numbers(exhibit(spec, ResultIndex(store, where)))["TENT+DELTA"][0]
        assert (number.mean, number.gain) == pytest.approx((60, 5))
        assert (number.runs, number.of) == (2, 4)


def test_a_natural_stream_of_four_seeds_is_one_run(tmp_path):
    where = dataclasses.replace(benchmark("demo"), seeds=(2020, 2021), corruptions=("none",))
    when = {"method": "tent", "scenario": StreamSpec("natural")}
    with Store(tmp_path / "s") as store:
        put(store, where, when, lambda c: 50)
        assert ResultIndex(store, where).values(when) == ({(2020, "none"): 50.0}, 1)


# Numbers from a store


def test_a_number_is_the_mean_over_corruptions_then_over_seeds(demo, store):
    value = {
        ("gaussian_noise", 2020): 40,
        ("motion_blur", 2020): 60,
        ("gaussian_noise", 2021): 44,
        ("motion_blur", 2021): 70,
    }
    spec = EXHIBITS["table-5"]
    when = merged(spec.columns[1].when, {"method": "tent"})
    put(store, demo, when, lambda cell: value[cell.corruptions[0], cell.stream.seed])
    table = exhibit(spec, ResultIndex(store, demo))
    assert isinstance(table, Table)
    assert table.title == "Table 5: DS+CB: dependent, class-balanced"
    assert [column.label for column in table.columns] == ["ρ = 1.0", "ρ = 0.5", "ρ = 0.1"]
    one, number, three = numbers(table)["TENT"]
    assert one is three is None
    assert number.mean == pytest.approx((50 + 57) / 2)
    assert number.std == pytest.approx(statistics.stdev([50, 57]))
    assert (number.runs, number.of) == (4, 4)
    assert (number.paper, number.paper_std) == tuple(PAPER["table-5"]["CIFAR100-C"]["TENT"]["0.5"])
    assert "The paper's numbers are of CIFAR100-C." in table.note
    assert all(cells == (None, None, None) for label, cells in numbers(table).items() if label != "TENT")


def test_where_runs_are_missing_a_number_says_so(demo, store):
    spec = EXHIBITS["table-5"]
    when = merged(spec.columns[0].when, {"method": "tent"})
    put(store, demo, {**when, "seeds": (2020,)}, lambda cell: 50)
    put(store, demo, {**when, "seeds": (2021,), "corruptions": ("motion_blur",)}, lambda cell: 80)
    number = numbers(exhibit(spec, ResultIndex(store, demo)))["TENT"][0]
    assert (number.mean, number.runs, number.of) == (pytest.approx(65), 3, 4)
    (one_seed,) = (spec for spec in TABLES if spec.id == "table-19")
    number = numbers(exhibit(one_seed, ResultIndex(store, demo)))["TENT"][-1]
    assert (number.mean, number.std, number.runs, number.of) == (pytest.approx(50), None, 2, 2)


def test_a_method_that_is_left_out_has_no_cells_and_no_row(store):
    less = benchmark("demo", without=["cotta", "tent"])
    spec = EXHIBITS["table-4"]
    methods = {cell.method for cell in spec.cells(less)}
    assert "tent+delta" in methods
    assert not methods & {"cotta", "tent"}
    put(store, less, {"method": "tent+delta", "scenario": IS_CB}, fifty_or_seventy)
    rows = numbers(exhibit(spec, ResultIndex(store, less)))
    assert not rows.keys() & {"CoTTA", "CoTTA*", "TENT"}
    assert (rows["TENT+DELTA"][0].mean, rows["TENT+DELTA"][0].gain) == (60, None)  # there is no TENT to gain on
    assert less.description.endswith("without cotta, tent")
    with pytest.raises(SettingError, match="compared with"):
        benchmark("demo", without=["source"])


def test_gains_are_over_the_row_a_row_builds_on_and_the_best_is_the_best_of_its_column(demo, store):
    spec = EXHIBITS["table-5"]
    values = {"source": (70, 10, 10), "pl+delta": (60, 20, 30), "tent": (30, 30, 20), "tent+delta": (50, 29, 30)}
    for name, (*means,) in values.items():
        for column, mean in zip(spec.columns, means, strict=True):
            put(store, demo, merged(column.when, {"method": name}), lambda cell, mean=mean: mean)
    found = numbers(exhibit(spec, ResultIndex(store, demo)))
    assert [number.gain for number in found["TENT+DELTA"]] == pytest.approx([20, -1, 10])
    assert [number.gain for number in found["PL+DELTA"]] == [None] * 3  # PL itself was not run
    assert [number.gain for number in found["Source"]] == [None] * 3
    best = {label for label, cells in found.items() if cells[0] and cells[0].best}
    assert best == {"Source"}
    assert [label for label, cells in found.items() if cells[1] and cells[1].best] == ["TENT"]
    assert [label for label, cells in found.items() if cells[2] and cells[2].best] == ["PL+DELTA", "TENT+DELTA"]


def test_spread_and_range_are_no_shares_and_none_of_them_is_best(demo, store):
    spec = EXHIBITS["table-3"]
    for row, std in zip(spec.rows, (30.5, 10.5, 9.5, 2.5), strict=True):
        when = merged(spec.columns[0].when, row.when)
        put(store, demo, when, lambda cell: 50, prediction_std=std, prediction_range=int(4 * std))
    found = numbers(exhibit(spec, ResultIndex(store, demo)))
    assert [cells[0].mean for cells in found.values()] == [30.5, 10.5, 9.5, 2.5]
    assert [cells[1].mean for cells in found.values()] == [122, 42, 38, 10]
    assert not any(number.best for cells in found.values() for number in cells[:2])
    assert [cells[2].mean for cells in found.values()] == [50] * 4
    assert found["Source"][0].paper == PAPER["table-3"]["CIFAR100-C"]["Source"]["IS+CB STD"][0]


def test_table_1_is_points_over_source(demo, store):
    spec = EXHIBITS["table-1"]
    for row, source, tent in zip(spec.rows, (60, 60, 60, 60), (70, 40, 65, 35), strict=True):
        put(store, demo, merged(row.when, {"method": "source"}), lambda cell, v=source: v)
        put(store, demo, merged(row.when, {"method": "tent"}), lambda cell, v=tent: v + cell.stream.seed - 2020.5)
    table = exhibit(spec, ResultIndex(store, demo))
    assert [row.label for row in table.rows] == [
        "IS+CB", "DS+CB (ρ=0.1)", "IS+CI (π=0.05)", "DS+CI (ρ=0.5, π=0.05)"
    ]  # fmt: skip
    assert [row.numbers[0].mean for row in table.rows] == pytest.approx([10, -20, 5, -25])
    assert [row.numbers[1] for row in table.rows] == [None] * 4
    assert table.head == "Scenario"
    arrows = {
        name: [scenario[name].split()[-1] for scenario in PAPER["table-1"]["CIFAR100-C"].values()]
        for name in ("TENT", "LAME", "DELTA")
    }
    assert f"TENT: {', '.join(arrows['TENT'])}. LAME: {', '.join(arrows['LAME'])}. DELTA: up in all four." in table.note
    assert set(arrows["DELTA"]) == {"up"}


def test_nothing_over_source_without_source(demo, store):
    spec = EXHIBITS["table-1"]
    put(store, demo, merged(spec.rows[0].when, {"method": "tent"}), lambda cell: 50)
    assert numbers(exhibit(spec, ResultIndex(store, demo)))["IS+CB"] == (None, None, None)


def test_a_run_without_resets_counts_domain_by_domain(demo, store):
    spec = EXHIBITS["table-5"]
    (row,) = (row for row in spec.rows if row.label == "CoTTA*")
    shares = {2020: {"gaussian_noise": 0.2, "motion_blur": 0.4}, 2021: {"gaussian_noise": 0.3, "motion_blur": 0.7}}
    put(
        store, demo, merged(spec.columns[0].when, row.when), lambda cell: 99,
        domains=lambda cell: shares[cell.stream.seed], stream="continual over gaussian_noise, motion_blur, each …",
    )  # fmt: skip
    number = numbers(exhibit(spec, ResultIndex(store, demo)))["CoTTA*"][0]
    assert number.mean == pytest.approx(40)
    assert number.std == pytest.approx(statistics.stdev([30, 50]))
    assert (number.runs, number.of) == (4, 4)
    assert numbers(exhibit(spec, ResultIndex(store, demo)))["CoTTA"][0] is None


def test_all_domains_at_once_are_one_run(demo, store):
    spec = EXHIBITS["table-8"]
    (mixed, _) = spec.columns_on(demo)
    put(
        store, demo, merged(mixed.when, {"method": "tent"}), lambda cell: 30,
        domains={"gaussian_noise": 0.1, "motion_blur": 0.9}, stream="mixed over gaussian_noise, motion_blur, each …",
    )  # fmt: skip
    number = numbers(exhibit(spec, ResultIndex(store, demo)))["TENT"][0]
    assert (number.mean, number.runs, number.of, number.paper) == (30, 2, 2, None)


def test_a_table_by_corruption_has_a_column_each_and_their_mean(demo, store):
    spec = EXHIBITS["table-18"]
    value = {"gaussian_noise": 40, "motion_blur": 70}
    put(store, demo, {**spec.columns[0].when, "method": "tent"}, lambda cell: value[cell.corruptions[0]])
    table = exhibit(spec, ResultIndex(store, demo))
    assert [column.label for column in table.columns] == ["gaussian noise", "motion blur", "mean"]
    assert [number.mean for number in numbers(table)["TENT"]] == [40, 70, 55]
    assert {number.paper for number in numbers(table)["TENT"]} == {None}
    assert EXHIBITS["table-18"].title == "By corruption: IS+CB"


def test_settings_that_say_the_default_are_the_same_run(demo, store):
    put(
        store,
        demo,
        {"method": "ent-w+delta", "scenario": EXHIBITS["table-14"].columns[0].when["scenario"]},
        lambda c: 61,
    )
    found = numbers(exhibit(EXHIBITS["table-14"], ResultIndex(store, demo)))
    assert found["Hard"][0].mean == pytest.approx(61)
    assert found["Soft"][0] is None


def test_only_the_named_results_count(demo, store):
    when = merged(EXHIBITS["table-4"].columns[0].when, {"method": "source"})
    put(store, demo, when, lambda cell: 40)
    one = {demo.cells(when)[0]: "0"}
    assert numbers(exhibit(EXHIBITS["table-4"], ResultIndex(store, demo, one)))["Source"][0].runs == 1
    assert numbers(exhibit(EXHIBITS["table-4"], ResultIndex(store, demo, {})))["Source"] == (None,)


@pytest.mark.parametrize("name", EXHIBITS)
def test_an_exhibit_of_an_empty_store_is_empty_and_whole(name, demo, store):
    made = exhibit(EXHIBITS[name], ResultIndex(store, demo))
    assert made.id == name
    if isinstance(made, Table):
        assert made.rows
        assert {number for row in made.rows for number in row.numbers} == {None}
        assert {len(row.numbers) for row in made.rows} == {len(made.columns)}
    elif isinstance(made, Figure):
        assert made.panels
        assert not any(series.y for panel in made.panels for series in panel.series)
    else:
        assert (made.strips if isinstance(made, Strips) else made.pictures) == ()


# Figures and strips


def test_an_exhibit_is_held_once_its_last_cell_is_there(demo, store):
    spec = EXHIBITS["figure-10"]
    *others, last = spec.cells(demo)
    for number, cell in enumerate(others):
        store.record(str(number), cell, result())
    assert not ResultIndex(store, demo).holds(spec)
    store.record("last", last, result())
    index = ResultIndex(store, demo)
    assert index.holds(spec)
    assert not index.on(demo.full()).holds(spec)
    assert not index.holds(EXHIBITS["figure-7"]), "nothing is run for a gallery"


def test_nobody_looks_beyond_the_first_cell_that_is_missing(demo, store, monkeypatch):
    made = []
    cells = type(demo).cells
    monkeypatch.setattr(type(demo), "cells", lambda self, when: made.append(when) or cells(self, when))
    assert not ResultIndex(store, demo).holds(EXHIBITS["table-2"])
    assert len(made) == 1


def panels(name, demo, store):
    return exhibit(EXHIBITS[name], ResultIndex(store, demo)).panels


def test_a_sweep_has_a_point_a_value_in_the_order_of_the_axis(demo, store):
    (spec,) = EXHIBITS["figure-10"].of(demo)
    for x, _, point in spec.points[:0:-1]:  # all but the first, the last one first
        put(store, demo, merged(point, {"method": "tent"}), lambda cell: 90 - 10 * cell.severity)
        assert x
    (panel,) = panels("figure-10", demo, store)
    lines = {series.label: (series.x, series.y) for series in panel.series}
    assert lines["TENT"] == ((2, 3, 4, 5), pytest.approx((70, 60, 50, 40)))
    assert lines["Source"] == ((), ())
    assert [name for _, name in panel.ticks] == list("12345")


def test_smoothing_varies_one_of_the_two_and_the_paper_chose_on_validation_corruptions(demo):
    for panel, name in zip(EXHIBITS["figure-5"].of(demo), ("alpha", "lam"), strict=True):
        cells = [cell for _, _, point in panel.points for cell in demo.cells({**point, "method": "tent+delta"})]
        assert {cell.corruptions for cell in cells} == {("speckle_noise",), ("gaussian_blur",)}
        assert {key for cell in cells for key, _ in cell.settings} == {name}
        values = sorted({value for cell in cells for _, value in cell.settings})
        assert values == [0.5, 0.8, 0.9, 0.95, 0.99, 0.999]


def test_statistics_come_from_the_trace_batch_by_batch(demo, store):
    mean = np.arange(24, dtype=np.float32).reshape(3, 8)
    for name, kinds in (("bn", ("batch",)), ("tema", ("batch", "kept"))):
        batches = {
            f"{kind} {what}": mean + (kind == "kept") + 100 * (what == "std")
            for kind in kinds
            for what in ("mean", "std")
        }
        trace = Trace(np.zeros(4, np.int32), np.zeros(4, np.int32), batches)
        for _, when, _ in (line for panel in EXHIBITS["figure-2"].of(demo) for line in panel.series):
            if when["method"] == name and not ResultIndex(store, demo).result(demo.cells(when)[0]):
                put(store, demo, when, lambda cell: 50, trace=trace)
    made = panels("figure-2", demo, store)
    assert [panel.title for panel in made] == ["μ, IS+CB", "μ, DS+CB", "σ, IS+CB", "σ, DS+CB"]
    for panel, base in zip(made, (0, 0, 100, 100), strict=True):
        batch, moving = panel.series
        assert (batch.x, batch.y) == ((1, 2, 3), (base, base + 8, base + 16))
        assert moving.y == (base + 1, base + 9, base + 17)


def test_predictions_per_class_fall_and_the_accuracy_along_the_stream_ends_where_it_ends(demo, store):
    predicted = np.repeat([3, 1, 2, 0], [40, 30, 20, 10]).astype(np.int32)
    labels = np.full(100, 3, np.int32)
    trace = Trace(predicted, labels)
    for name in ("figure-3", "stream"):
        _, when, _ = EXHIBITS[name].of(demo)[0].series[0]
        if not ResultIndex(store, demo).result(demo.cells(when)[0]):
            put(store, demo, when, lambda cell: 50, trace=trace)
    counts, _ = panels("figure-3", demo, store)[0].series
    assert counts.label == "Source, clean images"
    assert counts.y == (40, 30, 20, 10)
    (along,) = panels("stream", demo, store)[0].series
    assert along.x[-1] == 100
    assert (along.y[0], along.y[-1]) == (100, 0)
    assert all(0 <= y <= 100 for y in along.y)


def test_the_classes_of_a_natural_stream_are_counted(demo, store):
    labels = np.array([0, 0, 0, 1, 2, 2], np.int32)
    (spec,) = EXHIBITS["figure-8b"].of(demo)
    put(store, demo, spec.series[0][1], lambda cell: 50, trace=Trace(labels, labels))
    (panel,) = panels("figure-8b", demo, store)
    assert panel.mark == "bar"
    assert panel.series[0].y == (3, 1, 2)


def test_strips_are_the_labels_in_the_order_of_arrival(demo, store):
    spec = EXHIBITS["figure-1"]
    assert isinstance(spec, StripsSpec)
    lab = Lab(store.path.parent / "cache")
    expected = []
    for number, (label, cell) in enumerate(spec.streams_on(demo)):
        order = lab.stream(cell)
        labels = data.demo().labels[order.indices].astype(np.int32)
        store.record(str(number), cell, result(trace=Trace(labels, labels)))
        expected.append((label, tuple(labels.tolist())))
    made = exhibit(spec, ResultIndex(store, demo))
    assert [(strip.label, strip.classes) for strip in made.strips] == expected
    assert made.names[3] == "cat"

    def changes(strip):
        return np.count_nonzero(np.diff(strip.classes)) / len(strip.classes)

    is_cb, ds_cb, is_ci, ds_ci = made.strips
    assert changes(ds_cb) < 0.2 < changes(is_cb)
    assert changes(ds_ci) < 0.2 < changes(is_ci)
    assert np.ptp(np.bincount(is_cb.classes)) == 0 < np.ptp(np.bincount(is_ci.classes))
