"""Where data comes from: a sentence for each kind, and what to do without it."""

from typing import get_args

import pytest

from delta_tta.data.sources import NOTHING, SOURCES, how_to_get
from delta_tta.experiments.place import Kind


def test_every_kind_of_data_says_where_it_comes_from():
    assert {*SOURCES, "demo"} == set(get_args(Kind))


@pytest.mark.parametrize("kind", SOURCES)
def test_the_sentence_names_the_layout_and_the_embedded_images(kind):
    found = how_to_get(kind)
    assert found == f"{SOURCES[kind]} {NOTHING}"
    assert "/" in SOURCES[kind]  # a folder, or an address
    assert found.endswith(".")
    assert "data.demo()" in found
