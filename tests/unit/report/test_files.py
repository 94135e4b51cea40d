"""Exhibits as files."""

import pytest
from PIL import Image

from delta_tta.report.files import write_exhibit
from delta_tta.report.shown import Column, Figure, Number, Panel, Row, Series, Table
from delta_tta.report.text import csv, latex, markdown

TABLE = Table("table-1", "A table", (Column("a"),), (Row("r", (Number(12.5),)),))


def figure(*series):
    return Figure("figure-1", "A figure", (Panel("", "x", "y", series),))


def test_a_table_is_written_in_three_languages(tmp_path):
    write_exhibit(TABLE, tmp_path / "new" / "folder")
    found = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "new" / "folder").iterdir()}
    assert found == {"table-1.md": markdown(TABLE), "table-1.csv": csv(TABLE), "table-1.tex": latex(TABLE)}


def test_a_figure_is_drawn_twice(tmp_path):
    write_exhibit(figure(Series("s", (1.0, 2.0), (3.0, 4.0))), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"figure-1.png", "figure-1.svg"}
    with Image.open(tmp_path / "figure-1.png") as image:
        assert image.format == "PNG"
    assert (tmp_path / "figure-1.svg").read_text(encoding="utf-8").lstrip().startswith("<?xml")


@pytest.mark.parametrize("one", [figure(), Figure("figure-1", "", ())])
def test_a_figure_without_a_line_is_not_drawn(tmp_path, one):
    write_exhibit(one, tmp_path)
    assert not list(tmp_path.iterdir())
