"""The embedded images."""

import numpy as np
import pytest

from delta_tta import data


def test_the_embedded_images_are_the_announced_ones():
    images = data.demo()
    assert len(images) == 2000
    assert np.bincount(images.labels).tolist() == [200] * 10
    assert images.classes[3] == "cat"
    assert images.images.shape == (2000, 32, 32, 3)
    # the whole test set has mean (.494, .485, .450): a fifth of it must be near
    assert images.images.reshape(-1, 3).mean(0) / 255 == pytest.approx([0.494, 0.485, 0.450], abs=0.01)
