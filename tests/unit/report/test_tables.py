"""Tables of results."""

import dataclasses

import numpy as np
import pytest

from delta_tta.experiments import Result
from delta_tta.experiments.trace import Trace
from delta_tta.report import markdown
from delta_tta.report.tables import arrow, mean_over_data

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


def test_markdown_shows_the_change_against_source_and_the_best_in_bold(results):
    assert markdown(results).splitlines() == [
        "| | IS+CB | DS+CB (ρ=0.1) |",
        "|---|---|---|",
        "| source | 30.0 | 30.0 |",
        "| tent | **60.0** ▲30.0 | 20.0 ▼10.0 |",
        "| tent+delta | 50.0 ▲20.0 | **55.0** ▲25.0 |",
    ]
    assert "▲" not in markdown(results[2:])  # without Source there is nothing to compare with


def test_what_was_not_run_is_blank_and_seeds_are_told_apart(results):
    assert markdown(results[:-1]).splitlines()[-1] == "| tent+delta | 50.0 ▲20.0 |  |"
    other = dataclasses.replace(results[0], stream="IS+CB, seed 2021")
    assert markdown([results[0], other]).splitlines()[0] == "| | IS+CB, seed 2020 | IS+CB, seed 2021 |"


def test_several_data_sets_are_shown_by_their_mean(results):
    other = [dataclasses.replace(r, class_mean_accuracy=r.class_mean_accuracy + 0.1) for r in results]
    mean = mean_over_data([*results, *other])
    assert [r.class_mean_accuracy for r in mean] == pytest.approx([r.class_mean_accuracy + 0.05 for r in results])


def test_arrows_point_up_down_or_nowhere():
    assert [arrow(points) for points in (1.25, -0.05, 0.04, -0.04, 0)] == ["▲1.2", "▼0.1", "=", "=", "="]
