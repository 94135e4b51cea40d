"""`delta-tta report`: the page of a store."""

from command import run

SMALL = ["--images", "100", "--batch-size", "50", "--scenario", "IS+CB", "--workers", "0"]


def test_the_report_of_any_store_is_a_page(tmp_path):
    run("run", "-m", "source", "-m", "bn", *SMALL, "--store", "s.db")
    said = run("report", "s.db", "--out", "page.html").stderr
    assert "page.html" in said
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Accuracy over the stream" in page
    assert "Predictions per class" in page
