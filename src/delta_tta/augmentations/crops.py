"""Random crops of a batch, mirrored with probability ½: the copies of TTA, and what MEMO begins its copies with.

Small images are padded by black and cropped to their size, as those of CIFAR in training; of larger ones a random part
is enlarged to their size, as those of ImageNet.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .views import Draw, affine

SMALL = 64
"""Pixels: images whose longer side has no more are padded and cropped."""
PADDING = 1 / 8
"""Of the side: 4 of CIFAR's 32 pixels."""
LEAST = 0.08
"""Share of the area that a part has at least."""
SLENDER = 4 / 3
"""A part is at most so much wider than high, or higher than wide."""
TRIES = 10
BLACK = (0.0, 0.0, 0.0)


def crops(images: Tensor, copies: int, generator: Generator) -> Tensor:
    """Return copies of images, (N, 3, H, W) in 0 to 1, as (copies, N, 3, H, W).

    A copy draws its own numbers, the same for all images: so an image's copies do not depend on what is beside it.
    """
    shape = (copies, *images.shape)
    x = images.expand(shape).flatten(0, 1)
    draw = Draw(generator, copies, images, len(images))
    x = padded_crops(x, draw) if max(images.shape[2:]) <= SMALL else resized_crops(x, draw)
    return torch.where(draw.uniform(0, 1) < 0.5, x.flip(3), x).view(shape)


def padded_crops(x: Tensor, draw: Draw) -> Tensor:
    """Shift each image by up to an eighth of its side, in whole pixels; what comes in is black."""
    right, down = (_offset(draw, side) for side in (x.shape[3], x.shape[2]))
    nothing = torch.zeros_like(right)
    return affine(x, nothing, right, down, scale=nothing + 1, fill=BLACK)


def _offset(draw: Draw, side: int) -> Tensor:
    """Return −p, …, p pixels with equal probability, as a share of the side."""
    p = int(PADDING * side)
    return draw.uniform(-p, p + 1).floor().clamp(max=p) / side


def resized_crops(x: Tensor, draw: Draw) -> Tensor:
    """Enlarge a random part of each image to the image's size, bilinearly."""
    height, width = x.shape[2:]
    left, top, wide, high = (v.to(x).repeat_interleave(draw.each) for v in boxes(draw, height, width))
    xs, ys = _places(left, wide, width), _places(top, high, height)
    grid = torch.stack([xs[:, None, :].expand(-1, height, -1), ys[:, :, None].expand(-1, -1, width)], 3)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _places(begin: Tensor, length: Tensor, side: int) -> Tensor:
    """Return from where in −1 to 1 the pixels of a side come, (N, side)."""
    begin, length = begin[:, None], length[:, None]
    pixels = begin + (torch.arange(side, device=begin.device) + 0.5) * (length / side)
    own = pixels.clamp(begin + 0.5, begin + length - 0.5)  # what lies beside the part must not shine in
    return own * (2 / side) - 1


def boxes(draw: Draw, height: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return left, top, width and height of the parts, in whole pixels, one of each a draw.

    The share of the area is uniform from 0.08 to 1, the logarithm of the ratio of the sides uniform; of ten tries the
    first that fits into the image counts, or else the whole image.
    """

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, draw.count, generator=draw.generator)

    area = height * width * (LEAST + (1 - LEAST) * uniform(TRIES))
    ratio = ((2 * uniform(TRIES) - 1) * math.log(SLENDER)).exp()
    wide, high = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
    fits = (wide <= width) & (high <= height)
    first = fits.int().argmax(0, keepdim=True)
    wide, high = (
        torch.where(fits.any(0), tried.gather(0, first)[0], float(side)).clamp(min=1)
        for tried, side in ((wide, width), (high, height))
    )
    left, top = (
        (uniform() * (side - length + 1)).floor().clamp(max=side - length)
        for length, side in ((wide, width), (high, height))
    )
    return left, top, wide, high
