"""From what the model takes to images in 0 to 1, and back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from delta_tta.augmentations.pixels import Pixels
from delta_tta.errors import InputError, SettingError
from delta_tta.normalization import Normalisation
from delta_tta.settings import Settings
from nets import conv_net

MEAN, STD = (0.1, 0.5, 0.9), (0.2, 0.25, 0.5)


def made(**settings):
    return Pixels(conv_net(), Settings(**(settings or {"mean": MEAN, "std": STD})))


def test_the_normalisation_is_undone():
    bytes_ = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8)
    x = Normalisation(MEAN, STD)(bytes_)
    assert torch.allclose(made().of(x), bytes_ / 255, atol=1e-6)


@given(st.integers(0, 1000), st.sampled_from([torch.float32, torch.float64]))
def test_there_and_back_nothing_changes(seed, dtype):
    x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    pixels = made()
    back = pixels.back(pixels.of(x), x)
    assert back.dtype == dtype
    assert torch.allclose(back, x, atol=1e-5)


def test_half_precision_is_computed_in_float32_and_comes_back_as_it_was():
    x = torch.randn(2, 3, 4, 4).to(torch.bfloat16)
    pixels = made()
    assert pixels.of(x).dtype == torch.float32
    assert pixels.back(pixels.of(x), x).dtype == torch.bfloat16


def test_a_model_may_say_its_normalisation_and_settings_come_before_it():
    net = conv_net()
    net.normalisation = Normalisation(MEAN, STD)
    zeros = torch.zeros(1, 3, 1, 1)
    assert Pixels(net, Settings()).of(zeros).flatten().tolist() == pytest.approx(MEAN)
    with pytest.warns(UserWarning, match="but the model says"):
        given_ = Pixels(net, Settings(mean=(0, 0, 0), std=(1, 1, 1)))
    assert given_.of(zeros).flatten().tolist() == [0, 0, 0]
    with pytest.raises(SettingError, match=r"must undo their normalisation\. Sequential does not say"):
        Pixels(conv_net(), Settings())


@pytest.mark.parametrize(
    "x",
    [torch.zeros(3, 4, 4), torch.zeros(2, 1, 4, 4), torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(2, 3)],
    ids=["one image", "grey", "bytes", "flat"],
)
def test_what_is_no_batch_of_rgb_images_is_refused(x):
    with pytest.raises(InputError, match=r"Expected RGB images, float \(B, 3, H, W\), to augment, but got torch\."):
        made().of(x)
