"""The table of a comparison on the terminal."""

import numpy as np
import pytest
from delta_tta.report.terminal import accuracy_table
from rich.console import Console

from delta_tta.experiments import Result
from delta_tta.experiments.trace import Trace

DRAW = np.random.default_rng(0)


def result(method, stream, accuracy, samples=400):
    correct = DRAW.random(samples) < accuracy
    trace = Trace(correct.astype(np.int32), np.ones(samples, np.int32))
    name = f"{stream}, seed 2020"
    return Result(method, name, "0" * 16, samples, accuracy, accuracy, 0.1, 1.0, 2, {}, 1.0, {}, trace)


@pytest.fixture
def results():
    return [
        result("source", "IS+CB", 0.3),
        result("source", "DS+CB (ρ=0.1)", 0.3),
        result("tent", "IS+CB", 0.6),
        result("tent", "DS+CB (ρ=0.1)", 0.2),
        result("tent+delta", "IS+CB", 0.5),
        result("tent+delta", "DS+CB (ρ=0.1)", 0.55),
    ]


def test_the_terminal_table_is_coloured(results):
    console = Console(force_terminal=True, width=100, color_system="standard", record=True)
    with console.capture() as shown:
        console.print(accuracy_table(results))
    assert "\x1b[32m▲30.0" in shown.get()  # green
    assert "\x1b[31m▼10.0" in shown.get()  # red
