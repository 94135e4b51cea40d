"""The definitions of the figures: what is drawn over what."""

import numpy as np
import pytest

from delta_tta.corruptions.constants import TYPES
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.trace import Trace
from delta_tta.paper import benchmark as benchmark
from delta_tta.paper.figures import FIGURES, SMOOTH
from delta_tta.paper.spec import SweepSpec, TraceSpec

BY_ID = {figure.id: figure for figure in FIGURES}


@pytest.fixture
def demo():
    return benchmark("demo")


def panels(name, where):
    return BY_ID[name].of(where)


def test_figure_2_shows_the_batch_and_the_average_in_both_streams(demo):
    trace = Trace(
        np.zeros(4, np.int32),
        np.zeros(4, np.int32),
        {f"{who} {what}": np.array([[n, 9.0], [n + 1, 9]], np.float32)
         for n, (who, what) in enumerate([(w, s) for w in ("batch", "kept") for s in ("mean", "std")])},
    )  # fmt: skip
    found = panels("figure-2", demo)
    assert [panel.title for panel in found] == ["μ, IS+CB", "μ, DS+CB", "σ, IS+CB", "σ, DS+CB"]
    drawn = [[values(trace) for *_, values in panel.series] for panel in found]
    assert drawn[0] == drawn[1] == [([1.0, 2.0], [0.0, 1.0]), ([1.0, 2.0], [2.0, 3.0])]
    assert drawn[2] == drawn[3] == [([1.0, 2.0], [1.0, 2.0]), ([1.0, 2.0], [3.0, 4.0])]
    assert all(cell.statistics for cell in BY_ID["figure-2"].cells(demo))


def test_figure_3_has_clean_images_where_there_are_some(demo):
    labels = [[label for label, *_ in panel.series] for panel in panels("figure-3", demo)]
    assert labels[0] == ["Source, clean images", *labels[1]]
    assert {cell.method for cell in BY_ID["figure-3"].cells(demo)} == {"source", "tema", "tent+tbr", "tent+delta"}


@pytest.mark.parametrize(
    ("name", "places"),
    [("figure-9", [1, 2, 4, 8, 16, 32, 64, 128]), ("figure-10", [1, 2, 3, 4, 5]), ("figure-5", range(len(SMOOTH)))],
)
def test_what_a_sweep_goes_over(demo, name, places):
    for panel in panels(name, demo):
        assert isinstance(panel, SweepSpec)
        assert [place for place, *_ in panel.points] == list(places)


def test_figure_5_varies_one_setting_at_a_time_on_corruptions_for_choosing(demo):
    cells = BY_ID["figure-5"].cells(demo)
    assert {name for cell in cells for name in cell.corruptions} == set(demo.validation)
    varied = {cell.settings for cell in cells}
    assert varied == {((name, value),) for name in ("alpha", "lam") for value in SMOOTH}


def test_figure_8_counts_the_classes_of_the_stream(demo):
    (panel,) = panels("figure-8b", demo)
    assert isinstance(panel, TraceSpec)
    labels = np.array([2, 0, 2, 2], np.int32)
    ((_, _, values),) = panel.series
    assert values(Trace(labels, labels)) == ([1.0, 2.0, 3.0], [1.0, 0.0, 3.0])
    assert panel.mark == "bar"


def test_the_stream_has_a_panel_for_each_scenario(demo):
    assert [panel.title for panel in panels("stream", demo)] == [
        "IS+CB",
        "DS+CB (ρ=0.1)",
        "IS+CI (π=0.05)",
        "DS+CI (ρ=0.5, π=0.05)",
    ]


def test_a_gallery_shows_one_image_under_each_corruption(demo, tmp_path):
    shown = list(BY_ID["figure-7"].of(demo, Lab(tmp_path)))
    assert [label for label, _ in shown][:3] == ["Gaussian noise", "Shot noise", "Impulse noise"]
    assert shown[-1][0] == "JPEG compression"
    assert len(shown) == len(TYPES)
    assert len({image.tobytes() for _, image in shown}) == len(TYPES)
    assert {image.shape for _, image in shown} == {(32, 32, 3)}
    assert "--on imagenet-r" in BY_ID["figure-6"].why_not(demo)
