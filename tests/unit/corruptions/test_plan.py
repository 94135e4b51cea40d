"""The card of a corrupted set: what may join it, and what is refused."""

import json

import numpy as np
import pytest
from PIL import Image

from delta_tta import data
from delta_tta.corruptions.make import make_set
from delta_tta.errors import DataError

DRAW = np.random.default_rng(0)
IMAGES = DRAW.integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)


@pytest.fixture
def clean():
    return data.ArraySet("noise", IMAGES, np.arange(30) % 10, "abcdefghij")


@pytest.fixture
def files(tmp_path):
    for i in range(12):
        place = tmp_path / "clean" / "ab"[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(DRAW.integers(0, 256, (40, 48, 3), dtype=np.uint8)).save(place / f"{i}.png")
    return data.folder(tmp_path / "clean", size=32)


def test_another_set_in_the_same_folder_is_refused(tmp_path, clean):
    make_set(clean, tmp_path / "out", ["fog"], workers=1)
    with pytest.raises(DataError, match=r"made with seed 0 \(now 1\)"):
        make_set(clean, tmp_path / "out", ["fog"], seed=1, workers=1)
    other = data.ArraySet("noise", IMAGES[::-1], np.arange(30) % 10, "abcdefghij")
    with pytest.raises(DataError, match="digest"):
        make_set(other, tmp_path / "out", ["fog"], workers=1)
    make_set(clean, tmp_path / "out", ["frost"], workers=1)  # more types may join
    card = json.loads((tmp_path / "out" / "corruptions.json").read_text())
    assert card["corruptions"] == ["fog", "frost"]
    assert card["frost"] in ("photographs", "procedural texture")
    (tmp_path / "out" / "corruptions.json").write_text("{")
    with pytest.raises(DataError, match="damaged"):
        make_set(clean, tmp_path / "out", ["fog"], workers=1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="has other files in it"):
        make_set(clean, tmp_path / "full", ["fog"], workers=1)


@pytest.mark.parametrize("card", ["[]", "null", "7", "{}", '{"corruptions": 5}', '{"corruptions": [5]}'])
def test_a_card_that_is_none_is_called_damaged(tmp_path, clean, card):
    make_set(clean, tmp_path / "out", ["fog"], workers=1)
    (tmp_path / "out" / "corruptions.json").write_text(card)
    with pytest.raises(DataError, match=r"corruptions\.json is damaged; remove it"):
        make_set(clean, tmp_path / "out", ["fog"], workers=1)


def test_another_size_in_the_same_folder_is_refused(tmp_path, files):
    make_set(files, tmp_path / "out", ["fog"], [1], workers=1)
    other = data.folder(tmp_path / "clean", size=48)
    with pytest.raises(DataError, match="size"):
        make_set(other, tmp_path / "out", ["fog"], [1], workers=1)
