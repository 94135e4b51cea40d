"""TTA: a mean over crops."""

import pytest
import torch

import delta_tta
from all_methods import fitting
from delta_tta.augmentations.crops import crops
from nets import batches, conv_net

SCALE = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "views": 4}


def test_tta_is_the_mean_of_the_probabilities_over_crops():
    net, x = conv_net().eval(), batches(1)[0]
    generator = torch.Generator().manual_seed(7)
    pixels = x * 0.5 + 0.5
    with torch.no_grad():
        p = [net((crops(pixels, 1, generator)[0] - 0.5) / 0.5).softmax(1) for _ in range(4)]
    adapter = delta_tta.adapt(conv_net(), "tta", seed=7, **SCALE)
    assert torch.allclose(adapter(x).softmax(1), sum(p) / 4, atol=1e-5)


def test_tta_answers_an_image_the_same_whatever_its_batch():
    x = batches(1, size=6)[0]
    adapter = delta_tta.adapt(conv_net(), "tta", **SCALE)
    assert torch.allclose(torch.cat([adapter(one) for one in x.split(1)]), adapter(x), atol=1e-6)


@pytest.mark.parametrize(("preset", "views"), [("cifar10-c", 32), ("imagenet-c", 64), ("imagenet-r", 64), (None, 64)])
def test_tta_takes_as_many_copies_as_memo(preset, views):
    scale = {"mean": SCALE["mean"], "std": SCALE["std"]}
    for method in ("tta", "memo"):
        assert fitting(conv_net(), method, preset, **scale).settings.views == views
