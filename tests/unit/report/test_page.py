"""The report's page as a file: self-contained, safe to hold any text, written whole or not at all."""

import base64
import hashlib
import html
import json
import os
import re
from importlib import resources

import pytest

from delta_tta.report.page import SCRIPTS, STYLES, page, write_page
from delta_tta.report.shown import Column, Figure, Number, Panel, Report, Row, Series, Strip, Strips, Table

HOSTILE = "</script><!-- <img src=x onerror=alert(1)> & \u2028\u2029 {{data}} \\ \" ' ρ"


def report(text="Accuracy", mean=81.25):
    table = Table("t", text, (Column(text, text),), (Row(text, (Number(mean, 0.5, True), None)),), text)
    figure = Figure("f", text, (Panel(text, text, text, (Series(text, (1.0, 2.0), (mean, 2.0)),)),))
    return Report(text, text, (table, figure, Strips("s", text, (Strip(text, (0, 1)),), (text, text))), {text: text})


def data(text):
    """Return the JSON of a page as the browser would find it: up to the first end of a script."""
    return re.search(r'<script type="application/json" id="ui-data">(.*?)</script', text, re.DOTALL)[1]


def test_the_values_come_back_as_they_went_in():
    own = report()
    assert json.loads(data(page(own))) == json.loads(json.dumps(own.as_dict()))


def test_any_text_survives_and_none_becomes_markup():
    text = page(report(HOSTILE))
    assert json.loads(data(text))["title"] == HOSTILE
    assert json.loads(data(text))["exhibits"][2]["names"] == [HOSTILE, HOSTILE]
    assert text.lower().count("<script") == text.lower().count("</script") == 2
    assert "<img" not in text
    assert "<!--" not in text
    assert not re.search(r"[<>&\u2028\u2029]", data(text))
    assert f"<title>{html.escape(HOSTILE)}</title>" in text
    assert text.replace(data(text), "").count("{{data}}") == 3, "as text in the titles and the lead"


@pytest.mark.parametrize("mean", [float("nan"), float("inf"), float("-inf")])
def test_what_json_has_no_word_for_becomes_null(mean):
    def refuse(name):
        raise AssertionError(name)

    read = json.loads(data(page(report(mean=mean))), parse_constant=refuse)
    assert read["exhibits"][0]["rows"][0]["numbers"] == [
        {"mean": None, "std": 0.5, "best": True, "gain": None, "paper": None, "paper_std": None, "runs": 1, "of": 1},
        None,
    ]
    assert read["exhibits"][1]["panels"][0]["series"][0]["y"] == [None, 2.0]


def test_the_page_names_nothing_outside_itself():
    text = page(report())
    addresses = set(re.findall(r"""https?://[^\s'"<>)]*""", text))
    assert addresses == {"http://www.w3.org/2000/svg"}, "a namespace, which nobody fetches"
    assert not re.search(r"@import|url\(|\bimport\b\s*[('\"{]|\bfetch\(|XMLHttpRequest|\ssrc=", text)


def test_the_policy_allows_exactly_this_style_and_this_script():
    text = page(report())
    policy = dict(part.split(" ", 1) for part in re.search(r'Policy" content="([^"]*)"', text)[1].split("; "))
    assert policy["default-src"] == "'none'"
    assert "unsafe" not in str(policy)
    for tag, name in (("style", "style-src"), ("script", "script-src")):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy[name] == f"'sha256-{digest}'"


def test_every_file_of_the_page_is_used_and_small():
    folder = resources.files("delta_tta").joinpath("assets/page")
    sizes = {one.name: len(one.read_bytes()) for one in folder.iterdir()}
    assert set(sizes) == {"page.html", *SCRIPTS, *STYLES}
    assert max(sizes.values()) < 9000


def test_writing_makes_the_folder_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "a" / "b" / "report.html"
    write_page(report(), path)
    write_page(report("Again ρ"), path)
    assert path.read_text(encoding="utf-8") == page(report("Again ρ"))
    assert os.listdir(path.parent) == ["report.html"]


def test_a_write_that_fails_leaves_the_old_page(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    write_page(report(), path)
    before = path.read_bytes()

    def full(_):
        raise OSError("no space left on device")

    monkeypatch.setattr("delta_tta.files.os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_page(report("Again"), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["report.html"]
