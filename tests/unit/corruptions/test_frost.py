"""Pictures of frost: photographs, and a texture where there are none."""

import numpy as np
import pytest

from delta_tta.corruptions import corrupt, describe, frost, frost_source
from scenes import SETS


def photos(count, height=32, width=32, seed=0):
    """Coarse blocks of colour with some grain: every corruption does something to them."""
    draw = np.random.default_rng(seed)
    blocks = draw.integers(20, 236, (count, height // 4 + 1, width // 4 + 1, 3))
    coarse = blocks.repeat(4, axis=1).repeat(4, axis=2)[:, :height, :width]
    return (coarse + draw.integers(-20, 20, coarse.shape)).astype(np.uint8)


CLEAN = photos(6)


@pytest.fixture
def hide_photographs(monkeypatch):
    """A function after which the package with the photographs is not found."""

    def forget():
        frost._originals.cache_clear()
        frost.pictures.cache_clear()

    def hide():
        forget()
        monkeypatch.setattr(frost, "folder", lambda: None)

    yield hide
    forget()


def test_the_record_says_where_frost_comes_from(hide_photographs):
    assert describe("fog", 3) == "fog 3 (cifar constants)"
    assert frost_source() == "photographs"
    assert describe("frost", 1, "imagenet") == "frost 1 (imagenet constants, photographs)"
    hide_photographs()
    assert frost_source() == "procedural texture"
    assert describe("frost", 1, "imagenet") == "frost 1 (imagenet constants, procedural texture)"
    assert describe("fog", 3) == "fog 3 (cifar constants)"


def test_without_photographs_frost_is_another_and_still_the_same_every_time(hide_photographs):
    photographed = [corrupt(CLEAN, "frost", 5, constants) for constants in SETS]
    hide_photographs()
    for before, constants in zip(photographed, SETS, strict=True):
        made = corrupt(CLEAN, "frost", 5, constants)
        assert (made != before).any(axis=(1, 2, 3)).all()
        assert (made == corrupt(CLEAN, "frost", 5, constants)).all()
        assert (made != corrupt(CLEAN, "frost", 5, constants, seed=1)).any()
    assert corrupt(photos(1, 520, 600), "frost", 1).shape == (1, 520, 600, 3)  # larger than the texture
    texture = frost.ice(2)
    assert (texture == frost._originals()[2]).all()  # made again, not remembered
    assert 0 <= texture.min() < 100 < texture.mean() < 200 < texture.max() <= 255
