"""`delta-tta compare a.db b.db`: what changed between two stores."""

import dataclasses
import json

import pytest

from command import run
from delta_tta.experiments import Store
from laboratory import cell, place, result


@pytest.fixture
def cells(tmp_path):
    where = place(tmp_path / "place")
    return [cell(where, method) for method in ("source", "tent", "bn")]


def write(path, *results):
    """Results of made-up runs; all streams are the same."""
    with Store(path) as store:
        for one, found in results:
            store.record(str(one), one, found)


def changed(found, right):
    """The same run, with so many right answers."""
    predicted = (found.trace.labels + 1) % 2
    predicted[:right] = found.trace.labels[:right]
    trace = dataclasses.replace(found.trace, predicted=predicted.astype(found.trace.predicted.dtype))
    return dataclasses.replace(found, trace=trace, class_mean_accuracy=right / 40)


def test_the_largest_change_comes_first_and_what_is_alike_is_left_out(cells):
    base = result(seed=0)
    write("a.db", *((one, changed(base, 20)) for one in cells))
    write("b.db", (cells[0], changed(base, 20)), (cells[1], changed(base, 18)), (cells[2], changed(base, 32)))
    shown = run("compare", "a.db", "b.db")
    lines = [line for line in shown.stdout.splitlines() if "IS+CB" in line or " on " in line]
    assert [line.split()[1] for line in lines[:2]] == ["bn", "tent"]
    assert "+30.00" in lines[0]
    assert "-5.00" in lines[1]
    assert "2 of 3 common cells changed; mean +8.33 ± " in shown.stdout
    found = json.loads(run("compare", "a.db", "b.db", "--json").stdout)
    assert sorted(one["points"] for one in found["cells"]) == pytest.approx([-5, 0, 30])
    assert found["mean"] == pytest.approx(25 / 3)
    by_method = {one["cell"]["method"]: one for one in found["cells"]}
    assert (by_method["tent"]["gained"], by_method["tent"]["lost"]) == (0, 2)
    assert (by_method["bn"]["gained"], by_method["bn"]["lost"]) == (12, 0)


def test_cells_of_one_store_alone_are_counted(cells):
    write("a.db", (cells[0], result()), (cells[1], result()))
    write("b.db", (cells[2], result()))
    shown = run("compare", "a.db", "b.db").stdout
    expected = "The stores have no cell in common. 2 cells are only in the first store, 1 only in the second."
    assert shown.strip() == expected
