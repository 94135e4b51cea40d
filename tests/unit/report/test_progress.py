"""A run on the terminal: a line a finished cell where nothing can be drawn over, and why cells failed."""

import io

import pytest
from rich.console import Console

from delta_tta.experiments.cell import Cell
from delta_tta.experiments.local_engine import Event
from delta_tta.experiments.place import Place
from delta_tta.experiments.runner import Plan, RunProgress
from delta_tta.report.progress import failures, run_progress
from delta_tta.streams import StreamSpec
from laboratory import result

CELLS = {name: Cell(Place(), name, StreamSpec("IS+CB"), ("fog",)) for name in ("source", "tent", "bn")}
PLAN = Plan(CELLS, dict.fromkeys(CELLS, 400), {cell: key for key, cell in CELLS.items()})


def finished(key, accuracy):
    return CELLS[key], Event(CELLS[key], result=result(accuracy))


def shown(*states, **console):
    screen = io.StringIO()
    with run_progress(Console(file=screen, width=200, **console), PLAN) as on_progress:
        for state in states:
            on_progress(state)
        return screen.getvalue()


def test_each_finished_cell_is_a_line_and_said_once():
    first, second = finished("source", 0.5), finished("tent", 0.625)
    states = [
        RunProgress(3, 1200.0),
        RunProgress(3, 1200.0, done=1, worked=400.0, last=first),
        RunProgress(3, 1200.0, done=1, worked=400.0, last=first, running={"tent": Event(CELLS["tent"], 100, 0.4)}),
        RunProgress(3, 1200.0, done=2, worked=800.0, last=second),
    ]
    assert shown(*states).splitlines() == [
        "1/3 source on fog 5, IS+CB, seed 2020, B=64: 50.0 % (1.5 s)",
        "2/3 tent on fog 5, IS+CB, seed 2020, B=64: 62.5 % (1.5 s)",
    ]


@pytest.mark.parametrize("key", ["tent", "a cell of another plan"])
def test_on_a_terminal_there_is_a_bar_with_what_is_running(key):
    state = RunProgress(3, 1200.0, done=1, worked=400.0, last=finished("source", 0.5),
                        running={key: Event(CELLS["tent"], 100, 0.4)})  # fmt: skip
    screen = io.StringIO()
    with run_progress(
        Console(file=screen, width=200, force_terminal=True, force_interactive=True), PLAN
    ) as on_progress:
        on_progress(state)
    text = screen.getvalue()
    assert "1/3 cells" in text
    assert ("tent 40.0 %" in text) == (key == "tent")
    assert "source on fog" not in text


def test_a_reason_is_told_once_for_all_cells_that_it_stopped():
    said = []
    failures(said.append, PLAN, {"source": "no images", "tent": "no norms", "bn": "no images"})
    assert said == [
        "failed: source on fog 5, IS+CB, seed 2020, B=64 and 1 more: no images",
        "failed: tent on fog 5, IS+CB, seed 2020, B=64: no norms",
    ]
    failures(pytest.fail, PLAN, {})
