"""Runs as lines of accuracy."""

import numpy as np
import pytest

from delta_tta.experiments import Result
from delta_tta.experiments.experiment import Cell, Place
from delta_tta.experiments.trace import Trace
from delta_tta.report.runs import exhibits_of, trailing_mean
from delta_tta.report.shown import Figure
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


def test_the_trailing_mean_is_the_mean_of_the_last_ones():
    correct = DRAW.random(100) < 0.5
    seen, line = trailing_mean(correct, 20)
    assert seen[0] == 5
    assert seen[-1] == 100
    for n, value in zip(seen, line, strict=True):
        assert value == pytest.approx(correct[max(0, n - 20) : n].mean())


def test_the_figure_has_a_panel_for_each_stream_and_a_line_for_each_method(runs):
    traces = {cell: result.trace for cell, result in runs}
    along = next(one for one in exhibits_of(runs, traces.get) if isinstance(one, Figure))
    assert [panel.title for panel in along.panels] == ["IS+CB", "DS+CB (ρ=0.1)"]
    for panel in along.panels:
        assert [line.label for line in panel.series] == ["source", "tent", "tent+delta"]
