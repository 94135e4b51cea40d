"""Figures of panels: how many stand beside each other, what is drawn in them, and one legend for all."""

import numpy as np
import pytest

from delta_tta.errors import InputError
from delta_tta.report.charts import draw_figure
from delta_tta.report.shown import Figure, Panel, Series


def panel(*labels, mark="line", x=(1.0, 2.0, 3.0), y=(10.0, 30.0, 20.0), y_label="accuracy", **more):
    return Panel("title", "x", y_label, tuple(Series(label, x, y) for label in labels), mark, **more)


def drawn(*panels):
    return draw_figure(Figure("f", "A title", panels))


def legend(canvas):
    return [[text.get_text() for text in one.get_texts()] for one in canvas.legends]


@pytest.mark.parametrize(("count", "rows", "columns"), [(1, 1, 1), (4, 1, 4), (5, 2, 3), (8, 2, 4)])
def test_up_to_four_panels_stand_in_a_row(count, rows, columns):
    canvas = drawn(*[panel("a")] * count)
    assert len(canvas.axes) == count
    grid = canvas.axes[0].get_gridspec()
    assert (grid.nrows, grid.ncols) == (rows, columns)


def test_a_line_goes_through_its_values():
    (axes,) = drawn(panel("Source", "TENT")).axes
    for line in axes.get_lines():
        assert line.get_xydata().tolist() == [[1, 10], [2, 30], [3, 20]]
        assert line.get_marker() == "None"
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("x", "accuracy", "title")


def test_points_have_markers_that_differ():
    (axes,) = drawn(panel("a", "b", mark="points")).axes
    markers = [line.get_marker() for line in axes.get_lines()]
    assert len(set(markers)) == 2
    assert "None" not in markers


@pytest.mark.parametrize("log_x", [False, True])
def test_bars_of_several_series_stand_beside_each_other_around_their_place(log_x):
    x = (1.0, 10.0, 100.0) if log_x else (1.0, 2.0, 3.0)
    (axes,) = drawn(panel("a", "b", mark="bar", x=x, log_x=log_x)).axes
    flat = np.log10 if log_x else np.asarray
    bars = [
        [(flat(b.get_x()), flat(b.get_x() + b.get_width()), b.get_height()) for b in own] for own in axes.containers
    ]
    assert [[height for *_, height in own] for own in bars] == [[10, 30, 20]] * 2
    for place, (left, middle, _), (other, right, _) in zip(flat(x), *bars, strict=True):
        assert left < middle <= other < right
        assert (left + right) / 2 == pytest.approx(place, abs=1e-6)
        assert right - left < 0.83
    widths = [right - left for own in bars for left, right, _ in own]
    assert np.ptp(widths) < 1e-6


def test_one_legend_names_every_label_once():
    assert legend(drawn(panel("Source", "TENT"), panel("TENT", "DELTA"))) == [["Source", "TENT", "DELTA"]]
    assert legend(drawn(panel(""))) == []


def test_the_label_of_the_axis_is_written_once_where_all_share_it():
    assert [axes.get_ylabel() for axes in drawn(panel("a"), panel("a")).axes] == ["accuracy", ""]
    assert [axes.get_ylabel() for axes in drawn(panel("a"), panel("a", y_label="μ")).axes] == ["accuracy", "μ"]


def test_named_ticks_are_turned_where_they_would_overlap():
    short = tuple((float(n), str(n)) for n in (1, 2, 3))
    (axes,) = drawn(panel("a", ticks=short)).axes
    assert [(tick.get_text(), tick.get_rotation()) for tick in axes.get_xticklabels()] == [
        ("1", 0.0),
        ("2", 0.0),
        ("3", 0.0),
    ]
    (axes,) = drawn(panel("a", ticks=tuple((x, "a_rather_long_name") for x, _ in short))).axes
    assert {tick.get_rotation() for tick in axes.get_xticklabels()} == {40.0}


def test_a_figure_without_panels_is_refused():
    with pytest.raises(InputError, match="The figure 'f' has no panels; nothing can be drawn"):
        drawn()
