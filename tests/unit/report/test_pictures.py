"""Figures, strips and galleries as pictures."""

import base64
import io
import re
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image

from delta_tta.errors import InputError
from delta_tta.report.looks import COLOURS, class_colours
from delta_tta.report.pictures import DPI, draw
from delta_tta.report.shown import Figure, Gallery, Panel, Picture, Series, Strip, Strips

STRIPS = Strips("s", "Streams", (Strip("first", (0,) * 100 + (1,) * 100), Strip("second", (2,) * 50)), ("a", "b", "c"))


def gallery(*colours):
    def png(colour):
        file = io.BytesIO()
        Image.new("RGB", (8, 8), colour).save(file, "PNG")
        return base64.b64encode(file.getvalue()).decode()

    return Gallery("g", "Images", tuple(Picture(colour, png(colour)) for colour in colours))


def panel(mark="line", labels=("Source", "TENT", "DELTA"), points=6, **more):
    x = tuple(float(n + 1) for n in range(points))
    return Panel("a title", "x", "y", tuple(Series(label, x, x[::-1]) for label in labels), mark, **more)


def figure(*panels):
    return Figure("f", "Figure & title", panels)


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def share(image, colour):
    """Return which part of the picture has a colour, given as #rrggbb or as numbers from 0 to 1."""
    if isinstance(colour, str):
        colour = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    return float((np.abs(image - 255 * np.asarray(colour)).max(axis=-1) < 1.5).mean())


EXHIBITS = {
    "lines": figure(panel(), panel()),
    "points": figure(panel("points", log_x=True, ticks=((1, "one"), (6, "six")))),
    "bars": figure(panel("bar")),
    "log bars": figure(panel("bar", log_x=True)),
    "counts": figure(panel("bar", ("",), 100)),
    "names": figure(panel("bar", ticks=tuple((n + 1, "a_long_name") for n in range(6)))),
    "mixed": figure(panel("bar"), panel("points"), panel(), panel(), Panel("", "", "", ())),
    "odd names": figure(panel(labels=("_x", "$a", "$b$ \\c", "<&>"))),
    "strips": STRIPS,
    "gallery": gallery("#ff0000", "#00ff00", "#0000ff", "#ff00ff", "#00ffff", "#ffff00"),
    "gaps": Strips("s", "", (Strip("", (0, 1)), Strip("none", ())), ("a", "b")),
    "many": Strips("s", "t", (Strip("all", tuple(range(100))),), tuple(map(str, range(100)))),
}


@pytest.mark.parametrize("name", EXHIBITS)
def test_an_svg_is_well_formed_and_twice_the_same(name, tmp_path):
    draw(EXHIBITS[name], tmp_path / "a.svg")
    draw(EXHIBITS[name], tmp_path / "new" / "b.SVG")
    first, second = (tmp_path / "a.svg").read_bytes(), (tmp_path / "new" / "b.SVG").read_bytes()
    assert ElementTree.fromstring(first).tag == "{http://www.w3.org/2000/svg}svg"
    assert first == second
    assert b"dc:date" not in first
    assert not re.search(rb"Matplotlib v\d", first)


@pytest.mark.parametrize(("panels", "width", "rows"), [(1, 6.4, 1), (3, 10.8, 1), (4, 14.4, 1), (5, 10.8, 2)])
def test_a_png_is_as_large_as_its_panels_need(panels, width, rows, tmp_path):
    draw(figure(*[panel()] * panels), tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.size == (round(width * DPI), round((3.0 * rows + 0.8) * DPI))
        assert "Software" not in image.info


def test_source_is_grey_and_every_label_has_its_colour_in_all_panels(tmp_path):
    draw(figure(panel("bar"), panel("bar", ("DELTA",))), tmp_path / "a.png")
    image = pixels(tmp_path / "a.png")
    left, right = np.array_split(image[: int(0.8 * len(image))], 2, axis=1)  # without the legend
    for colour in COLOURS[:3]:
        assert share(left, colour) > 0.01
    assert [share(right, colour) > 0.01 for colour in COLOURS[:4]] == [False, False, True, False]


@pytest.mark.parametrize("label", ["Source", "source"])
def test_source_may_come_last(label, tmp_path):
    draw(figure(panel("bar", ("TENT", label))), tmp_path / "a.png")
    image = pixels(tmp_path / "a.png")
    assert [share(image, colour) > 0.01 for colour in COLOURS[:3]] == [True, True, False]


def test_a_hundred_bars_can_be_told_apart(tmp_path):
    draw(figure(panel("bar", ("n",), 100)), tmp_path / "a.png")
    image = pixels(tmp_path / "a.png")
    colour = [int(COLOURS[1][i : i + 2], 16) for i in (1, 3, 5)]
    filled = np.abs(image.astype(int) - colour).max(axis=-1) < 60
    low = filled[int(0.68 * len(image))]  # just above the axis, where all but the lowest bars are
    assert 85 <= (np.diff(low.astype(int)) == 1).sum() <= 100


def test_a_gallery_shows_all_its_images(tmp_path):
    colours = ("#ff0000", "#00ff00", "#0000ff", "#ff00ff", "#00ffff", "#ffff00")
    draw(gallery(*colours), tmp_path / "g.png")
    shares = [share(pixels(tmp_path / "g.png"), colour) for colour in colours]
    assert min(shares) > 0.05
    assert max(shares) - min(shares) < 0.001


def test_strips_show_the_colours_of_their_classes_for_as_long_as_they_last(tmp_path):
    draw(STRIPS, tmp_path / "a.png")
    image = pixels(tmp_path / "a.png")
    a, b, c = (share(image, colour) for colour in class_colours(3))
    assert a == pytest.approx(b, rel=0.05)
    assert c == pytest.approx(a / 2, rel=0.1)
    assert a > 0.05


def test_the_order_of_a_strip_is_the_order_of_arrival(tmp_path):
    classes = (0, 1, 2) * 100
    draw(Strips("s", "", (Strip("x", classes),), ("a", "b", "c")), tmp_path / "a.png")
    image = pixels(tmp_path / "a.png").astype(int)
    colours = np.round(255 * class_colours(3)).astype(int)
    near = np.abs(image[:, :, None] - colours).max(axis=-1) < 2
    line = near[near.any(axis=-1).sum(axis=1).argmax()]  # the row of pixels with most of the strip
    seen = line.argmax(axis=-1)[line.any(axis=-1)]
    order = seen[np.concatenate([[True], np.diff(seen) != 0])]
    assert tuple(order[:300]) == classes


def test_a_class_without_a_name_is_refused(tmp_path):
    with pytest.raises(InputError, match="'x' has a class for which there is no name among the 2"):
        draw(Strips("s", "", (Strip("x", (0, 2)),), ("a", "b")), tmp_path / "a.png")


@pytest.mark.parametrize("empty", [figure(), Strips("s", "", (), ()), Strips("s", "", (Strip("x", ()),), ("a",))])
def test_nothing_cannot_be_drawn(empty, tmp_path):
    with pytest.raises(InputError, match="nothing can be drawn"):
        draw(empty, tmp_path / "a.png")


@pytest.mark.parametrize("name", ["a.pdf", "a", "png"])
def test_another_suffix_is_refused(name, tmp_path):
    with pytest.raises(InputError, match=r"\.png or \.svg"):
        draw(figure(panel()), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_user_s_settings_neither_change_nor_are_changed(tmp_path):
    draw(figure(panel()), tmp_path / "a.svg")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        draw(figure(panel()), tmp_path / "b.svg")
        assert matplotlib.rcParams["font.size"] == 30
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
