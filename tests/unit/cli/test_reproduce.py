"""`delta-tta reproduce`: the list of tables and figures."""

import json

from command import run


def test_a_table_stands_beside_the_papers(tmp_path):
    shown = run("run", "-m", "source", "--scenario", "IS+CB", "--store", "s.db", "--workers", "0", "-q")
    assert "91.8" not in shown.stdout
    listed = run("reproduce", "--list", "table-7", "table-1", "--store", "s.db")
    assert "table-7" in listed.stdout
    assert "as they share cells" in listed.stderr
    assert not (tmp_path / "delta-tta.db").exists()


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    assert text.isascii()
    return json.loads(text, parse_constant=refuse)


def test_the_list_of_exhibits_as_json():
    rows = strict(run("reproduce", "--list", "table-4", "table-18", "--json").stdout)
    assert [row["name"] for row in rows] == ["table-4", "table-18"]
    for row in rows:  # each by itself: all cells of the second are in the first, too
        assert row["in_store"] == 0
        assert row["cells"] > 0
        assert row["minutes_left"] > 0
