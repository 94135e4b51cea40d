"""The definitions of tables 15 to 34: by corruption, of one seed."""

import pytest

from delta_tta.corruptions.constants import TYPES
from delta_tta.paper import benchmark as benchmark
from delta_tta.paper.appendix import APPENDIX, COUNTERPARTS, SCENARIOS

BY_ID = {table.id: table for table in APPENDIX}


def test_there_are_twenty_and_all_are_by_corruption():
    assert list(BY_ID) == [f"table-{n}" for n in range(15, 35)]
    assert all(table.by_corruption for table in APPENDIX)


def test_all_cells_are_of_seed_2020():
    where = benchmark("demo")
    for table in APPENDIX:
        assert {cell.stream.seed for cell in table.cells(where)} == {2020}


@pytest.mark.parametrize(("number", "scenario"), [*zip(COUNTERPARTS, SCENARIOS, strict=True)])
def test_a_table_of_one_scenario_has_the_same_cells_as_that_of_the_other_data(number, scenario):
    where = benchmark("demo")
    first, second = BY_ID[f"table-{number}"], BY_ID[f"table-{COUNTERPARTS[number]}"]
    cells = first.cells(where)
    assert {cell.stream.without_seed for cell in cells} == {scenario.without_seed}
    assert cells == second.cells(where)
    assert first.why_not(where) == ""
    assert second.why_not(where) == f"It is about other images; on these it is {first.id}."


def test_a_column_for_each_corruption_and_their_mean():
    where = benchmark("demo").full()
    labels = [column.label for column in BY_ID["table-18"].columns_on(where)]
    assert labels[: len(TYPES)] == [name.replace("_", " ") for name in TYPES]
    assert len(labels) == len(TYPES) + 1


@pytest.mark.parametrize(
    ("number", "what", "values"),
    [
        (15, lambda cell: cell.method, {"source", "bn", "tema", "tent", "tent+tema", "tent+tbr"}),
        (16, lambda cell: cell.batch_size, {200, 128, 16, 8, 1}),
        (17, lambda cell: cell.severity, {1, 2, 3, 4, 5}),
        (27, lambda cell: cell.method, {"source", "tent", "tent+delta", "ent-w", "ent-w+delta"}),
    ],
)
def test_what_the_studies_vary(number, what, values):
    found = {what(cell) for cell in BY_ID[f"table-{number}"].cells(benchmark("demo"))}
    assert found >= values - {200}


def test_averages_start_both_ways_at_every_batch_size():
    cells = BY_ID["table-16"].cells(benchmark("demo"))
    starts = {(cell.batch_size, dict(cell.settings).get("init")) for cell in cells if cell.method == "tent+delta"}
    assert {size for size, _ in starts} == {128, 16, 8, 1}
    assert len(starts) == 8
