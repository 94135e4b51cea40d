"""What a report shows, as values."""

import json

import pytest

from delta_tta.report.shown import (
    Column,
    Figure,
    Gallery,
    Number,
    Panel,
    Picture,
    Report,
    Row,
    Series,
    Strip,
    Strips,
    Table,
    shows_something,
)

COLUMNS = (Column("a"), Column("b", "group"))
LINE = Panel("", "x", "y", (Series("s", (1.0,), (2.0,)),))


@pytest.mark.parametrize(
    ("one", "shows"),
    [
        (Table("t", "", COLUMNS, ()), False),
        (Table("t", "", COLUMNS, (Row("r", (None, None)),)), False),
        (Table("t", "", COLUMNS, (Row("r", (None, None)), Row("s", (None, Number(1.0))))), True),
        (Figure("f", "", ()), False),
        (Figure("f", "", (Panel("", "", "", ()),)), False),
        (Figure("f", "", (Panel("", "", "", ()), LINE)), True),
        (Strips("s", "", (), ()), False),
        (Strips("s", "", (Strip("a", ()),), ()), True),
        (Gallery("g", "", ()), False),
        (Gallery("g", "", (Picture("a", ""),)), True),
    ],
)
def test_whether_there_is_anything_in_it(one, shows):
    assert shows_something(one) == shows


def test_a_report_becomes_json_in_which_each_exhibit_says_its_kind():
    table, figure = (
        Table("t", "A table", COLUMNS, (Row("r", (Number(1.5, best=True), None)),)),
        Figure("f", "", (LINE,)),
    )
    found = json.loads(json.dumps(Report("title", "lead", (table, figure), {"Runs": "3"}).as_dict()))
    assert (found["title"], found["lead"], found["about"]) == ("title", "lead", {"Runs": "3"})
    first, second = found["exhibits"]
    assert (first["kind"], first["id"], second["kind"]) == ("table", "t", "figure")
    assert first["rows"][0]["numbers"][0] == {
        "mean": 1.5, "std": None, "best": True, "gain": None, "paper": None, "paper_std": None, "runs": 1, "of": 1,
    }  # fmt: skip
    assert first["rows"][0]["numbers"][1] is None
    assert second["panels"][0]["series"] == [{"label": "s", "x": [1.0], "y": [2.0]}]
