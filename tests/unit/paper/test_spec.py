"""The paper's tables and figures: their cells, and the paper's numbers beside them."""

import itertools
import json
import re
from importlib import resources

import numpy as np
import pytest

from delta_tta.corruptions.constants import TYPES
from delta_tta.errors import SettingError
from delta_tta.experiments.lab import Lab
from delta_tta.paper import BENCHMARKS, EXHIBITS
from delta_tta.paper import benchmark as benchmark
from delta_tta.paper import numbers as paper
from delta_tta.paper.spec import FigureSpec, GallerySpec, TableSpec

TABLES = [spec for spec in EXHIBITS.values() if isinstance(spec, TableSpec)]


PAPER = json.loads(resources.files("delta_tta.paper").joinpath("paper.json").read_text(encoding="utf-8"))


ARROWS = "table-1"  # has no numbers


ONLY_IMAGENET = {"TTA", "MEMO", "KL-div (1e2)", "KL-div (1e3)"}  # rows the paper prints for ImageNet-C alone


@pytest.fixture(scope="module")
def benchmarks(tmp_path_factory):
    """All grounds, as far as they are without their data; CIFAR-100 has a hundred images."""
    root = tmp_path_factory.mktemp("grounds")
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (200, 32, 32, 3), dtype=np.uint8)
    np.savez(root / "test.npz", images=images, labels=np.arange(200) % 100)
    weights = dict.fromkeys(("cifar100-c", "ytbb-sub"), root / "weights.pt")
    return {name: benchmark(name, None if name == "demo" else root, weights.get(name)) for name in BENCHMARKS}


@pytest.fixture
def demo():
    return benchmark("demo")


# The definitions


def test_every_exhibit_of_the_paper_is_there():
    assert [spec.id for spec in TABLES] == [f"table-{n}" for n in range(1, 35)]
    figures = [name for name in EXHIBITS if name.startswith("figure")]
    assert figures == [f"figure-{n}" for n in ("1", "2", "3", "4", "5", "6", "7", "8a", "8b", "9", "10")]


@pytest.mark.parametrize("name", EXHIBITS)
@pytest.mark.parametrize("on", ["demo", "cifar100"])
def test_every_exhibit_has_cells_that_can_be_run(name, on, benchmarks, tmp_path):
    where = benchmarks[on]
    if EXHIBITS[name].why_not(where) or isinstance(EXHIBITS[name], GallerySpec):
        return  # test_benchmarks.py runs them all
    cells = EXHIBITS[name].cells(where)
    assert len(cells) == len(set(cells)) >= 1
    assert {cell.place.data for cell in cells} == {where.place.data}
    lab = Lab(tmp_path)
    assert all(lab.key(cell) for cell in cells[:2])  # the images, the model and the stream can be had


def test_all_cells_of_the_demo_have_a_key(demo, tmp_path):
    cells = list(dict.fromkeys(cell for spec in EXHIBITS.values() for cell in spec.cells(demo)))
    lab = Lab(tmp_path)
    keys = {}
    for cell in cells:
        keys.setdefault(lab.key(cell), []).append(cell)
    for same in keys.values():  # those that say the same in other words
        assert len({(c.method, c.stream, c.corruptions, c.spelled_out) for c in same}) == 1


def test_with_everything_a_benchmark_has_all_corruptions_and_seeds(demo):
    full = demo.full()
    (spec,) = (spec for spec in TABLES if spec.id == "table-5")
    cells = spec.cells(full)
    assert {cell.corruptions for cell in cells if cell.order == "each"} == {(name,) for name in TYPES}
    assert {cell.corruptions for cell in cells if cell.order == "continual"} == {TYPES}
    assert {cell.stream.seed for cell in cells} == {2020, 2021, 2022, 2023}
    assert {cell.place.images for cell in cells} == {None}
    assert len(cells) == 3 * 4 * (11 * 15 + 1)
    assert full.description.endswith("all 15 corruptions, four seeds, whole streams")


def test_slow_methods_get_shorter_streams(demo):
    (spec,) = (spec for spec in TABLES if spec.id == "table-4")
    samples = {cell.method: cell.samples for cell in spec.cells(demo)}
    assert {name for name, count in samples.items() if count == 250} == {"cotta", "memo", "tta"}
    assert set(samples.values()) == {None, 250}


def test_a_benchmark_without_its_data_is_refused():
    for name in set(BENCHMARKS) - {"demo"}:
        with pytest.raises(SettingError, match=r"--(data|weights)"):
            benchmark(name)
    with pytest.raises(SettingError, match="Did you mean 'cifar100-c'"):
        benchmark("cifar-100-c")


# The paper's numbers


@pytest.mark.parametrize("on", BENCHMARKS)
@pytest.mark.parametrize("spec", [spec for spec in TABLES if spec.id in PAPER], ids=lambda spec: spec.id)
def test_every_number_a_table_names_is_one_the_paper_prints(spec, on, benchmarks):
    where = benchmarks[on]
    of = spec.data or where.stands_for
    columns = [column for column in spec.columns_on(where) if column.paper]
    if of not in PAPER[spec.id]:
        assert spec.rows_on(where) == spec.rows  # all of them, with nothing beside
        return
    missing = {
        row.label
        for row, column in itertools.product(spec.rows_on(where), columns)
        if paper.printed(spec.id, of, row.label, column.paper) is None
    }
    assert missing <= (ONLY_IMAGENET if on == "demo" else set())


@pytest.mark.parametrize(("table", "of"), [(table, of) for table in PAPER if table != ARROWS for of in PAPER[table]])
def test_every_row_and_column_of_the_papers_tables_is_in_ours(table, of, benchmarks):
    spec = EXHIBITS[table]
    where = [one for one in benchmarks.values() if (spec.data or one.stands_for) == of and one.name != "demo"]
    assert where
    for one in where:
        assert {row.label for row in spec.rows_on(one)} == set(PAPER[table][of])
        if table == "table-8" and one.name not in ("imagenet-r", "ytbb-sub"):
            continue
        wanted = {column for columns in PAPER[table][of].values() for column in columns}
        assert {column.paper for column in spec.columns_on(one)} == wanted


def test_the_rows_and_columns_have_the_methods_and_streams_they_are_named_after(benchmarks):
    words = {
        "Source": "source",
        "BN adapt": "bn",
        "TENT+TBR+DOT": "tent+delta",
        "CoTTA*": "cotta",
        "DOT": "ent-w+delta",
    }
    for spec in TABLES:
        if spec.head == "Method" and spec.id != "table-10":
            for row in spec.rows_on(benchmarks["imagenet-c"]):
                bare = re.sub(r"^[^:]*: |, .*", "", row.label)  # without scenario, severity, architecture; batch size
                name = words.get(bare, bare.lower().replace("bn adapt+", ""))
                assert row.when["method"] == name, (spec.id, row.label)
    for rho, column in zip((1.0, 0.5, 0.1), EXHIBITS["table-5"].columns, strict=True):
        assert (column.paper, column.when["scenario"].rho) == (str(rho), rho)
    for column in (*EXHIBITS["table-6"].columns, *EXHIBITS["table-14"].columns):
        scenario, _, value = column.paper.partition(" ")
        stream = column.when["scenario"]
        assert stream.scenario == scenario
        if value:
            assert float(value) == (stream.rho if scenario == "DS+CB" else stream.pi)
        if scenario == "DS+CI":
            assert stream.rho == 0.5
    for column in EXHIBITS["table-13"].columns:
        assert column.paper == f"{column.group} {column.when['seeds'][0]}"
        assert column.when["method"] == column.group.lower()


def test_traces_are_of_one_run_each(benchmarks):
    for where in benchmarks.values():
        for spec in EXHIBITS.values():
            if isinstance(spec, FigureSpec):
                traced = [line for panel in spec.of(where) for line in panel.series if len(line) == 3]
                assert all(len(where.cells(when)) == 1 for _, when, _ in traced)
