"""Values of settings as typed, and what lies in a folder of clean images."""

import pytest

from delta_tta.cli.support.options import clean_images, clean_kind, read_value


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("0.5", 0.5), ("1e-3", 1e-3), ("true", True), ("False", False), ("none", None), ("sgd", "sgd")],
)
def test_values_have_the_type_that_they_look_like(text, value):
    found = read_value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("names", "kind"),
    [(["cat", "dog"], "folder"), (["test"], "cifar"), (["cifar-10-batches-py"], "cifar"), (["test.npz"], "cifar")],
)
def test_the_layout_says_whether_it_is_cifar(tmp_path, names, kind):
    for name in names:
        (tmp_path / name).touch() if "." in name else (tmp_path / name).mkdir()
    assert clean_kind(tmp_path) == kind


def test_without_a_place_the_images_are_the_embedded_ones():
    assert clean_kind(None) == "demo"
    assert len(clean_images(None)) == 2000
