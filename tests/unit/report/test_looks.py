"""The colours of pictures."""

import numpy as np
import pytest

from delta_tta.report.looks import COLOURS, SeriesStyle, class_colours


@pytest.mark.parametrize("count", [1, 2, 6, 10, 12, 20, 100])
def test_no_two_classes_have_the_same_colour(count):
    colours = class_colours(count)
    assert colours.shape == (count, 3)
    assert ((colours >= 0) & (colours <= 1)).all()
    apart = np.abs(colours[:, None] - colours).max(axis=-1) + np.eye(count)
    assert apart.min() > (0.02 if count > 20 else 0.08)


def test_a_label_looks_the_same_wherever_it_stands_and_source_is_grey():
    style = SeriesStyle(["TENT", "source", "DELTA", "TENT"])
    assert style.labels == ["TENT", "source", "DELTA"]
    assert style.colour("source") == COLOURS[0]
    assert [style.colour(label) for label in ("TENT", "DELTA")] == list(COLOURS[1:3])
    assert SeriesStyle(["TENT", "DELTA"]).colour("DELTA") == style.colour("DELTA")


def test_twenty_eight_labels_look_different():
    labels = [f"method {n}" for n in range(28)]
    style = SeriesStyle(labels)
    assert len({(style.colour(label), str(style.dashes(label))) for label in labels}) == 28
    assert len({(style.colour(label), style.marker(label)) for label in labels[:7]}) == 7
