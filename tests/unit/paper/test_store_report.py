"""The page of a store: the paper's exhibits that were run, and all other runs."""

import dataclasses

import pytest

from delta_tta.experiments import Cell, Store
from delta_tta.experiments.place import Place
from delta_tta.paper import EXHIBITS
from delta_tta.paper import benchmark as benchmark
from delta_tta.paper.store_report import report_of, store_report
from delta_tta.report.shown import Column, Figure, Number, Panel, Row, Series, Table
from delta_tta.streams import StreamSpec
from laboratory import result


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "mine.db") as opened:
        yield opened


def put(store, *cells):
    for cell in cells:
        store.record(f"key {len(store)}", cell, result(0.5, len(store), method=cell.method))


OTHER = Cell(Place(), "tent", StreamSpec("IS+CB"), ("fog",), severity=2, batch_size=7)


def ids(report):
    return [one.id for one in report.exhibits]


def test_runs_that_are_not_the_papers_are_shown_as_they_are(store):
    put(store, OTHER, dataclasses.replace(OTHER, method="source"))
    report = store_report(store)
    assert report.lead == "2 runs in mine.db."
    assert ids(report) == ["stream", "overview-1", "streams", "predictions"]
    assert report.about["Runs"] == "2, 80 predictions"
    assert report.about["Networks"] == "a network (its own)"
    assert report.about["Made with"] == "torch 2"


def test_what_is_the_papers_is_shown_as_the_paper_does(store):
    demo = benchmark("demo")
    put(store, *EXHIBITS["table-14"].cells(demo))
    report = store_report(store)
    assert report.lead == f"On {demo.description}."
    assert "table-14" in ids(report)
    assert not any(name.startswith("overview") for name in ids(report))
    put(store, OTHER)
    report = store_report(store)
    assert report.lead == f"On {demo.description}; and 1 other runs."
    assert {"table-14", "overview-1"} <= set(ids(report))


def test_an_empty_store_has_a_page(store):
    report = store_report(store)
    assert (report.lead, report.exhibits) == ("0 runs in mine.db.", ())
    assert report.about["Made with"].startswith("delta-tta ")


def test_a_reproduction_shows_what_was_made_the_stream_first_and_nothing_empty(store):
    put(store, OTHER)
    table = Table("table-1", "", (Column("a"),), (Row("r", (Number(1.0),)),))
    empty = dataclasses.replace(table, id="table-2", rows=())
    stream = Figure("stream", "", (Panel("", "", "", (Series("s", (1.0,), (1.0,)),)),))
    report = report_of(benchmark("demo"), [table, empty, stream], store, ["key 0"])
    assert ids(report) == ["stream", "table-1"]
    assert report.about["Runs"] == "1, 40 predictions"
