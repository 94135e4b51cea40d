"""AugMix: in range, and right against Pillow."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from delta_tta.augmentations import augmix


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(count=4, side=16, seed=0):
    return torch.rand(count, 3, side, side, generator=generator(seed))


@given(st.integers(0, 500))
def test_augmix_stays_in_range_and_near_its_image(seed):
    x = pictures(3, 8, seed)
    made = augmix.augmix(x, 2, generator(seed))
    assert made.shape == (2, *x.shape)
    assert made.isfinite().all()
    assert made.min() >= -1e-6
    assert made.max() <= 1 + 1e-6


def levels_of(x, severity=1.0):
    return augmix.Level(generator(), len(x), x, 1, severity)


@pytest.mark.parametrize(
    ("ours", "pillow"),
    [
        (augmix.autocontrast, ImageOps.autocontrast),
        (augmix.equalise, ImageOps.equalize),
        (augmix.posterise, lambda image: ImageOps.posterize(image, 4)),
    ],
)
def test_operations_are_pillows(ours, pillow):
    levels = (pictures(3, 16, seed=2) * 0.6 * 255 + 20).round()
    made = ours(levels / 255, levels_of(levels))
    for image, mine in zip(levels, made, strict=True):
        theirs = np.asarray(pillow(Image.fromarray(image.permute(1, 2, 0).numpy().astype(np.uint8))))
        assert np.abs(mine.permute(1, 2, 0).numpy() * 255 - theirs).max() <= 1.01


class Fixed(augmix.Level):
    """One level and one sign for all images."""

    def __init__(self, x, level, sign, fill=augmix.DARK_RED):
        super().__init__(generator(), len(x), x, 1, 1.0, fill)
        self.strength, self.direction = x.new_full((len(x), 1, 1, 1), level), sign

    def level(self):
        return self.strength

    def sign(self):
        return torch.full_like(self.strength, self.direction)


def affine_by_pillow(*numbers):
    return lambda image, fill: image.transform(
        image.size, Image.Transform.AFFINE, numbers, resample=Image.Resampling.BILINEAR, fillcolor=fill
    )


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("ours", "level", "pillow"),
    [
        (augmix.rotate, 0.9, lambda s: lambda i, fill: i.rotate(-2 * s, Image.Resampling.BILINEAR, fillcolor=fill)),
        (augmix.rotate, 2.9, lambda s: lambda i, fill: i.rotate(-8 * s, Image.Resampling.BILINEAR, fillcolor=fill)),
        (augmix.shear_x, 0.8, lambda s: affine_by_pillow(1, 0.024 * s, 0, 0, 1, 0)),
        (augmix.shear_y, 2.8, lambda s: affine_by_pillow(1, 0, 0, 0.084 * s, 1, 0)),
        (augmix.translate_x, 0.95, lambda s: affine_by_pillow(1, 0, -s, 0, 1, 0)),
        (augmix.translate_y, 2.5, lambda s: affine_by_pillow(1, 0, 0, 0, 1, -2 * s)),
    ],
)
def test_what_moves_an_image_moves_it_as_pillow_does(ours, level, pillow, sign):
    assert Image.new("RGB", (1, 1), 128).getpixel((0, 0)) == tuple(round(255 * v) for v in augmix.DARK_RED)
    levels = (pictures(2, 32, seed=2) * 255).round()
    for fill, number in ((augmix.DARK_RED, 128), (augmix.BLACK, None)):  # MEMO's, AugMix's
        made = ours(levels / 255, Fixed(levels, level, sign, fill))
        for image, mine in zip(levels, made, strict=True):
            picture = Image.fromarray(image.permute(1, 2, 0).numpy().astype(np.uint8))
            theirs = np.asarray(pillow(sign)(picture, number)).astype(float)
            assert np.abs(mine.permute(1, 2, 0).numpy() * 255 - theirs).max() <= 1.01


@pytest.mark.parametrize("level", [0.1, 0.9, 2.7])
def test_solarise_is_pillows(level):
    levels = torch.arange(256.0).view(1, 1, 16, 16).expand(1, 3, 16, 16)
    made = augmix.solarise(levels / 255, Fixed(levels, level, 1)) * 255
    picture = Image.fromarray(levels[0].permute(1, 2, 0).numpy().astype(np.uint8))
    theirs = np.asarray(ImageOps.solarize(picture, 256 - int(25.6 * level)))
    assert np.abs(made[0].permute(1, 2, 0).numpy() - theirs).max() < 0.01


def test_memos_copies_show_its_colour_beyond_the_edge_and_training_black():
    x = torch.ones(64, 1, 3, 32, 32)
    memos = augmix.augmix(x[0], 64, generator())
    assert (memos[:, 0, 0] - memos[:, 0, 1]).max() > 0.05  # more red than green
    trained = augmix.mix_chains(x, generator(), 3.0)
    assert trained.min() < 0.9
    assert torch.equal(trained[:, :, 0], trained[:, :, 1])


def test_equalise_leaves_a_flat_image_alone():
    flat = torch.full((1, 3, 8, 8), 100 / 255)
    assert torch.allclose(augmix.equalise(flat, levels_of(flat)), flat)


def test_solarise_inverts_only_what_is_bright():
    x = torch.tensor([0.2, 0.5, 0.85, 0.995]).view(1, 1, 2, 2).expand(1, 3, 2, 2)
    made = augmix.solarise(x, levels_of(x))[0, 0].flatten().tolist()
    assert made == pytest.approx([0.2, 0.5, 0.85, 0.005], abs=1e-6)


def test_posterise_keeps_three_bits_at_high_levels_only():
    x = pictures(200, 4)
    made = (augmix.posterise(x, levels_of(x, 3.0)) * 255).round().to(torch.int)
    bits = [3 if not (image % 32).any() else 4 for image in made]
    assert not (made % 16).any()
    assert 0.1 < bits.count(3) / len(bits) < 0.25  # levels above 2.5 of 0.1 to 3: 17 %


def test_chains_of_a_higher_severity_go_farther_from_the_image():
    x = pictures(64).unsqueeze(1)
    near, far = ((augmix.mix_chains(x, generator(3), severity) - x).abs().mean() for severity in (1.0, 3.0))
    assert far > 1.1 * near
