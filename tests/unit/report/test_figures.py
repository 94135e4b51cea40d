"""Pictures of results over a stream."""

import dataclasses

import numpy as np
import pytest
from delta_tta.report.figures import trailing_mean
from PIL import Image

from delta_tta.experiments import Result
from delta_tta.experiments.trace import Trace
from delta_tta.report import accuracy_over_stream

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
