"""Streams as coloured bars."""

import numpy as np
import pytest

from delta_tta.errors import InputError
from delta_tta.report.looks import class_colours
from delta_tta.report.shown import Strip, Strips
from delta_tta.report.strips import draw_strips


def drawn(*classes, names="abc"):
    return draw_strips(
        Strips("s", "Streams", tuple(Strip(f"strip {n}", own) for n, own in enumerate(classes)), tuple(names))
    )


def test_a_sample_has_the_colour_of_its_class():
    canvas = drawn((0, 0, 2), (1,))
    for axes, classes in zip(canvas.axes, ([0, 0, 2], [1]), strict=True):
        (image,) = axes.get_images()
        assert np.allclose(np.asarray(image.get_array())[0], class_colours(3)[classes])
        assert image.get_extent()[:2] == [-0.5, len(classes) - 0.5]
        assert axes.get_xlim() == (-0.5, 2.5)  # all have the length of the longest
    assert [axes.get_yticklabels()[0].get_text() for axes in canvas.axes] == ["strip 0", "strip 1"]


def test_few_classes_are_named_below_and_many_beside_a_strip_of_all():
    (legend,) = drawn((0, 1, 2)).legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]
    many = drawn((0, 20), names=[f"class {n}" for n in range(21)])
    assert not many.legends
    assert len(many.axes) == 2
    assert [tick.get_text() for tick in many.axes[-1].get_xticklabels()] == ["class 0", "class 20"]


def test_the_length_of_the_stream_is_written_above():
    texts = [text.get_text() for text in drawn((0,) * 57).axes[0].texts]
    assert {"time", "57 samples"} <= set(texts)


def test_what_cannot_be_drawn_is_refused():
    for classes in ((), ((),), ((), ())):
        with pytest.raises(InputError, match="The strips 's' hold no samples"):
            drawn(*classes)
    for wrong in ((0, 3), (-1, 0)):
        with pytest.raises(InputError, match="'strip 1' has a class for which there is no name among the 3"):
            drawn((0, 1), wrong)
