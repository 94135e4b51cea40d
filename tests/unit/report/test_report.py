"""Tables and pictures of results."""

import dataclasses

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from delta_tta.experiments import Result
from delta_tta.experiments.trace import Trace
from delta_tta.report import accuracy_over_stream, markdown
from delta_tta.report.figures import trailing_mean
from delta_tta.report.tables import arrow, mean_over_data
from delta_tta.report.terminal import accuracy_table

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


def test_the_terminal_table_is_coloured(results):
    console = Console(force_terminal=True, width=100, color_system="standard", record=True)
    with console.capture() as shown:
        console.print(accuracy_table(results))
    assert "\x1b[32m▲30.0" in shown.get()  # green
    assert "\x1b[31m▼10.0" in shown.get()  # red


def test_the_trailing_mean_is_the_mean_of_the_last_ones():
    correct = DRAW.random(100) < 0.5
    seen, line = trailing_mean(correct, 20)
    assert seen[0] == 5
    assert seen[-1] == 100
    for n, value in zip(seen, line, strict=True):
        assert value == pytest.approx(correct[max(0, n - 20) : n].mean())


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_the_picture_has_a_panel_for_each_stream(tmp_path, results, streams):
    more = [dataclasses.replace(r, stream=r.stream + f" {i}") for i in range(streams) for r in results[::2]]
    accuracy_over_stream(more, tmp_path / "new" / "out.png", "title")
    with Image.open(tmp_path / "new" / "out.png") as picture:
        assert picture.size[0] == (676 if streams == 1 else 1352)
        assert len(np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)) > 50
