"""The definitions of tables 1 to 14: their methods, conditions and the rows that gains are over."""

import pytest

from delta_tta import recipe
from delta_tta.paper import benchmark as benchmark
from delta_tta.paper.tables import FIELD, IID_FIELD, RIVALS, TABLES, columns, method, small_batches, with_delta
from delta_tta.streams import StreamSpec


@pytest.mark.parametrize(
    ("name", "label"),
    [("source", "Source"), ("ent-w", "Ent-W"), ("tent+tbr", "TENT+TBR"), ("tema", "BN adapt+TEMA"), ("bn", "BN adapt")],
)
def test_a_method_has_the_name_that_the_paper_gives_it(name, label):
    row = method(name)
    assert (row.label, row.when, row.builds_on) == (label, {"method": name}, None)


def test_delta_builds_on_its_objective():
    base, delta = with_delta("pl")
    assert (base.label, delta.label, delta.builds_on) == ("PL", "PL+DELTA", "PL")
    assert delta.when == {"method": "pl+delta"}


def test_every_row_of_the_field_is_a_method_and_each_gain_is_over_a_row_that_is_there():
    for field in (FIELD, IID_FIELD, RIVALS):
        labels = [row.label for row in field]
        assert len(set(labels)) == len(labels)
        for row in field:
            assert recipe.parse(row.when["method"])
            assert row.builds_on is None or labels.index(row.builds_on) < labels.index(row.label)
    assert {row.label for row in IID_FIELD} - {row.label for row in FIELD} == {"TTA", "MEMO"}


@pytest.mark.parametrize(
    ("size", "init"), [(128, "first"), (16, "first"), (9, "first"), (8, "inherit"), (1, "inherit")]
)
def test_small_batches_start_as_figure_9_finds_better(size, init):
    assert small_batches(size) == {"batch": size, "settings": {"update": "slow", "length": 128, "init": init}}


def test_a_column_for_each_scenario():
    spec = StreamSpec("DS+CB", rho=0.5)
    (one,) = columns({"DS+CB 0.5": spec}, batch="study")
    assert (one.label, one.paper, one.when) == ("DS+CB 0.5", "DS+CB 0.5", {"scenario": spec, "batch": "study"})


def test_the_tables_are_the_papers_and_their_conditions_can_be_run():
    assert [table.id for table in TABLES] == [f"table-{n}" for n in range(1, 15)]
    where = benchmark("demo")
    cells = {table.id: table.cells(where) for table in TABLES}
    assert all(cells.values())
    assert {cell.corruptions for cell in cells["table-7"]} == {("none",)}
    assert {cell.corruptions for cell in cells["table-3"]} == {("gaussian_noise",)}
    assert {cell.batch_size for cell in cells["table-11"]} == {128, 16, 8, 1}
    assert {dict(cell.settings).get("dot") for cell in cells["table-14"]} == {"hard", "soft"}
    similarity = [dict(cell.settings)["similarity"] for cell in cells["table-10"] if "div-w" in cell.method]
    assert set(similarity) == {0.05, 0.1, 0.2, 0.4}
