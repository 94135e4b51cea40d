"""Crops: of small images padded, of large ones resized, against plain ones and Pillow."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from delta_tta.augmentations.crops import boxes, crops, resized_crops
from delta_tta.augmentations.views import Draw


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(height, width, count=2):
    return torch.rand(count, 3, height, width, generator=generator(5))


@pytest.mark.parametrize("side", [16, 32, 64])
def test_small_images_are_padded_by_an_eighth_cropped_and_mirrored(side):
    pad, x = side // 8, pictures(side, side)
    padded = F.pad(x, [pad] * 4)
    shifts = range(2 * pad + 1)
    all_places = [(top, left, flip) for top in shifts for left in shifts for flip in (False, True)]
    everywhere = torch.stack([_crop(padded, *place, side) for place in all_places])
    middle = everywhere[..., side // 2, :].clone()
    seen = set()
    for copy in crops(x, 60, generator()):
        near = ((middle - copy[..., side // 2, :]).abs() <= 1e-4).flatten(1).all(1).nonzero().flatten().tolist()
        places = [all_places[i] for i in near if torch.allclose(everywhere[i], copy, atol=1e-5)]
        assert len(places) == 1  # the same crop of both images
        seen.add(places[0])
    assert {flip for *_, flip in seen} == {False, True}
    for axis in (0, 1):
        assert {place[axis] for place in seen} >= {0, pad, 2 * pad}


def _crop(padded, top, left, flip, side):
    cropped = padded[:, :, top : top + side, left : left + side]
    return cropped.flip(3) if flip else cropped


@pytest.mark.parametrize(("height", "width"), [(72, 72), (65, 90)])
def test_parts_of_large_images_are_enlarged_as_by_pillow(height, width):
    levels = (pictures(height, width) * 255).round()
    copies = 12
    places = torch.stack(boxes(Draw(generator(3), copies, levels, 2), height, width), 1).int().tolist()
    made = resized_crops((levels / 255).repeat(copies, 1, 1, 1), Draw(generator(3), copies, levels, 2))
    for i, (left, top, wide, high) in enumerate(places):
        for image, mine in zip(levels, made[2 * i : 2 * i + 2], strict=True):
            part = Image.fromarray(image.permute(1, 2, 0).numpy().astype(np.uint8))
            part = part.crop((left, top, left + wide, top + high)).resize((width, height), Image.Resampling.BILINEAR)
            assert np.abs(mine.permute(1, 2, 0).numpy() * 255 - np.asarray(part).astype(float)).max() <= 1.5


def test_the_parts_are_those_of_training_on_imagenet():
    x = pictures(224, 224, 1)
    left, top, wide, high = boxes(Draw(generator(), 20_000, x), 224, 224)
    share, ratio = wide * high / 224**2, wide / high
    assert 0.078 < float(share.min()) < 0.09
    assert 0.95 < float(share.max()) <= 1
    assert 0.74 < float(ratio.min()) < 0.76
    assert 1.32 < float(ratio.max()) < 1.35
    assert float(ratio.log().mean()) == pytest.approx(0, abs=0.01)
    below = (share < 0.54).double().mean()  # half, but for the large ones that do not fit
    assert 0.5 < float(below) < 0.65
    for begin, length in ((left, wide), (top, high)):
        assert float(begin.min()) == 0
        assert float((begin + length).max()) == 224
        assert (begin == begin.round()).all()


def test_an_image_into_which_no_part_fits_stays_whole():
    x = pictures(4, 400, 1)
    _, _, wide, high = boxes(Draw(generator(), 50, x), 4, 400)
    assert wide.tolist() == [400.0] * 50
    assert high.tolist() == [4.0] * 50
    made = crops(x, 6, generator())
    assert all(torch.allclose(one, x, atol=1e-3) or torch.allclose(one, x.flip(3), atol=1e-3) for one in made)


def test_the_size_decides_between_the_two():
    black = [(crops(torch.ones(1, 3, side, side), 40, generator()) == 0).any() for side in (64, 65)]
    assert black == [True, False]
