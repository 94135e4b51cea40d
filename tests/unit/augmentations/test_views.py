"""Augmentations: batched, each image with draws of its own, in range, and right against plain ones."""

import colorsys

import pytest
import torch

from delta_tta.augmentations import augmix
from delta_tta.augmentations.views import Draw, affine, blur, jitter, light_views, turn_hue, views
from vision import torchvision


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(count=4, side=16, seed=0):
    return torch.rand(count, 3, side, side, generator=generator(seed))


def copies_by_augmix(x, numbers):
    return augmix.augmix(x[:1], len(x), numbers)[:, 0]


@pytest.mark.parametrize("make", [views, light_views, copies_by_augmix])
def test_copies_are_images_and_differ_from_each_other(make):
    one = pictures(1).expand(8, -1, -1, -1)
    made = make(one, generator())
    assert made.shape == one.shape
    assert made.min() >= 0
    assert made.max() <= 1
    assert len({tuple(image.flatten()[:50].tolist()) for image in made}) == 8
    assert torch.equal(made, make(one, generator()))
    assert not torch.equal(made, make(one, generator(1)))


def test_hue_turns_as_in_hsv():
    x = pictures(1, 4)
    turned = turn_hue(x, torch.full((1, 1, 1, 1), 0.05))
    for i in range(4):
        for j in range(4):
            h, s, v = colorsys.rgb_to_hsv(*x[0, :, i, j].tolist())
            wanted = colorsys.hsv_to_rgb((h + 0.05) % 1, s, v)
            assert turned[0, :, i, j].tolist() == pytest.approx(wanted, abs=1e-5)


def test_no_change_is_no_change():
    x, nothing = pictures(2), torch.zeros(2, 1, 1, 1)
    assert torch.allclose(affine(x, nothing, nothing, nothing, scale=nothing + 1), x, atol=1e-5)
    assert torch.allclose(blur(x, nothing + 0.001), x)
    assert torch.allclose(turn_hue(x, nothing), x, atol=1e-6)


def test_a_quarter_turn_and_a_shift_are_what_they_say():
    x = torch.zeros(1, 3, 8, 8)
    x[:, :, 1, 2] = 1
    turn, nothing = torch.full((1, 1, 1, 1), 90.0), torch.zeros(1, 1, 1, 1)
    turned = affine(x, turn, nothing, nothing, scale=nothing + 1)
    assert torch.allclose(turned, torch.rot90(x, -1, (2, 3)), atol=1e-4)  # clockwise
    moved = affine(x, nothing, nothing + 1 / 8, nothing + 2 / 8, scale=nothing + 1)
    assert float(moved[0, 0, 3, 3]) == pytest.approx(1, abs=1e-4)


def shares(*values):
    return [torch.full((1, 1, 1, 1), value) for value in values]


@pytest.mark.parametrize("degrees", [-15.0, 8.0])
@pytest.mark.parametrize(("right", "down"), [(4, -3), (-4, 4), (0, 0)])
@pytest.mark.parametrize("scale", [0.9, 1.1])
@pytest.mark.parametrize(("fill", "padding"), [(None, "edge"), ("mirror", "reflect")])
def test_the_map_of_a_view_is_that_of_a_padded_image(degrees, right, down, scale, fill, padding):
    """As CoTTA's and ROID's programs do it: pad by half a side, turn and shift the larger image, cut out the middle."""
    functional = torchvision.transforms.functional
    x = pictures(1, 32)
    padded = functional.pad(x, [16], padding_mode=padding)
    bilinear = torchvision.transforms.InterpolationMode.BILINEAR
    moved = functional.affine(padded, degrees, [right, down], scale, [0.0], interpolation=bilinear)
    wanted = functional.center_crop(moved, [32])
    turn, *shift, zoom = shares(degrees, right / 32, down / 32, scale)
    assert torch.allclose(affine(x, turn, *shift, scale=zoom, fill=fill), wanted, atol=1e-4)


def test_a_view_is_shifted_by_up_to_an_eighth_of_its_side_in_whole_pixels():
    x = torch.zeros(600, 3, 32, 32)
    x[:, :, 15:17, 15:17] = 1  # what lies in the centre is moved by the shift alone
    made = views(x, generator()).mean(1)
    light = (made - 0.5 * made.amax((1, 2), keepdim=True)).clamp(min=0)
    places = torch.arange(32) - 15.5
    for axis in (1, 2):
        moved = (light.sum(axis) * places).sum(1) / light.sum((1, 2))
        assert (moved - moved.round()).abs().max() < 0.1
        assert moved.round().unique().tolist() == list(range(-4, 5))


def test_light_views_add_neither_noise_nor_an_edge():
    grey = torch.full((4, 3, 8, 8), 0.5)
    for image in light_views(grey, generator()):
        assert (image - image[:, :1, :1]).abs().max() < 1e-6
    assert (views(grey, generator())[0].std((1, 2)) > 1e-3).all()


def test_each_image_is_jittered_by_draws_of_its_own():
    same = pictures(1).expand(5, -1, -1, -1)
    made = jitter(same, Draw(generator(), 5, same))
    assert not torch.allclose(made[0], made[1])


def test_together_all_images_get_the_same_draws_but_for_the_noise():
    x = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)).expand(6, -1, -1, -1)
    same = views(x, torch.Generator().manual_seed(1), together=True)
    own = views(x, torch.Generator().manual_seed(1))
    assert float((same - same[:1]).abs().max()) < 0.06  # noise of 0.005
    assert float((same - same[:1]).abs().max()) > 0
    assert float((own - own[:1]).abs().max()) > 0.2
    assert float((same - x).abs().max()) > 0.1
