"""`delta-tta demo`: the paper's point."""

import json
import re

import pytest

from command import run
from delta_tta.adapt import RECOMMENDED


@pytest.mark.slow
def test_the_demo_shows_the_papers_point(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = run("demo", "--json", "--images", "600", "--workers", "0")
    cells = {(r["method"], r["stream"].split()[0].rstrip(",")): r for r in json.loads(shown.stdout)}
    score = {key: 100 * r["class_mean_accuracy"] for key, r in cells.items()}
    assert len(cells) == 20
    for method in ("bn", "tent"):
        assert score[method, "IS+CB"] > score["source", "IS+CB"] + 10
        assert score[method, "DS+CB"] < score["source", "DS+CB"], "normalising by the batch ruins dependent streams"
    for method in ("tent+delta", RECOMMENDED):
        for stream in ("DS+CB", "IS+CI", "DS+CI"):
            assert score[method, stream] > score["source", stream] + 10
            assert score[method, stream] > score[method, "IS+CB"] - 10
    for stream in ("DS+CB", "DS+CI"):
        assert score[RECOMMENDED, stream] > score["tent+delta", stream] + 5
    assert (tmp_path / "delta-tta-demo.png").stat().st_size > 20_000
    page = (tmp_path / "delta-tta-demo.html").read_text(encoding="utf-8")
    found = json.loads(re.search(r'type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1])["exhibits"]
    rows = ["source", "bn", "tent", "tent+delta", RECOMMENDED]
    assert [row["label"] for row in next(one for one in found if one["id"].startswith("overview"))["rows"]] == rows
    for figure in (one for one in found if one["id"] in ("stream", "predictions")):
        assert all([line["label"] for line in panel["series"]] == rows for panel in figure["panels"])
    assert shown.stderr.splitlines()[-2:] == [
        "Accuracy over the stream: delta-tta-demo.png",
        "The page: delta-tta-demo.html",
    ]
