"""Methods side by side, as `demo` and `compare` show them, and lines of accuracy."""

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from delta_tta.experiments import Result
from delta_tta.experiments.experiment import Cell, Place
from delta_tta.experiments.trace import Trace
from delta_tta.report.console import rich_table
from delta_tta.report.overview import against_source, overview
from delta_tta.report.text import arrow, markdown
from delta_tta.streams import StreamSpec

DRAW = np.random.default_rng(0)
IID, DEPENDENT = StreamSpec("IS+CB", seed=2020), StreamSpec("DS+CB", rho=0.1, seed=2020)


def run(method, stream, accuracy, samples=400, corruption="fog"):
    correct = DRAW.random(samples) < accuracy
    trace = Trace(correct.astype(np.int32), np.ones(samples, np.int32))
    result = Result(method, str(stream), "0" * 16, samples, accuracy, accuracy, 0.1, 1.0, 2, {}, 1.0, {}, trace)
    return Cell(Place(), method, stream, (corruption,)), result


@pytest.fixture
def runs():
    return [
        run("source", IID, 0.3),
        run("source", DEPENDENT, 0.3),
        run("tent", IID, 0.6),
        run("tent", DEPENDENT, 0.2),
        run("tent+delta", IID, 0.5),
        run("tent+delta", DEPENDENT, 0.55),
    ]


def compared(runs):
    (table,) = overview(runs)
    return replace(against_source(table), title="", note="", head="")


def test_markdown_shows_the_change_against_source_and_the_best_in_bold(runs):
    assert markdown(compared(runs), arrows=True).splitlines() == [
        "| | IS+CB | DS+CB (ρ=0.1) |",
        "| --- | ---: | ---: |",
        "| source | 30.0 | 30.0 |",
        "| tent | **60.0** ▲30.0 | 20.0 ▼10.0 |",
        "| tent+delta | 50.0 ▲20.0 | **55.0** ▲25.0 |",
    ]
    assert "▲" not in markdown(compared(runs[2:]), arrows=True)  # without Source there is nothing to compare with


def test_what_was_not_run_is_blank(runs):
    assert markdown(compared(runs[:-1]), arrows=True).splitlines()[-1] == "| tent+delta | 50.0 ▲20.0 |  |"
    without = markdown(compared([runs[0], *runs[2:]]), arrows=True).splitlines()  # Source on one stream only
    assert without[-1] == "| tent+delta | 50.0 ▲20.0 | **55.0** |"


def test_several_corruptions_are_shown_by_their_mean(runs):
    others = [run(cell.method, cell.stream, result.accuracy + 0.1, corruption="snow") for cell, result in runs]
    rows = zip(compared(runs).rows, compared([*runs, *others]).rows, strict=True)
    for one, both in rows:
        assert [n.mean for n in both.numbers] == pytest.approx([n.mean + 5 for n in one.numbers])


def test_arrows_point_up_down_or_nowhere():
    assert [arrow(points, 1) for points in (1.25, -0.05, 0.04, -0.04, 0)] == ["▲1.2", "▼0.1", "=", "=", "="]


def test_the_terminal_table_is_coloured(runs):
    console = Console(force_terminal=True, width=100, color_system="standard", record=True)
    with console.capture() as shown:
        console.print(rich_table(compared(runs), arrows=True))
    assert "\x1b[32m ▲30.0" in shown.get()  # green
    assert "\x1b[31m ▼10.0" in shown.get()  # red
