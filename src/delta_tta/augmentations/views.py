"""Random views of a batch, all of it in torch and all images at once; each image is drawn for separately.

Works on images in 0 to 1. `views` are CoTTA's augmentations (Wang et al. 2022), `light_views` ROID's (Marsden et al.
2024).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

GREY = (0.299, 0.587, 0.114)
NOISE = 0.005
SHIFT = 1 / 8
"""Of the side. CoTTA's program shifts by a sixteenth of an image that it has padded to twice the side."""
Colour = tuple[float, float, float]


class Draw:
    """Uniform numbers from one generator, shaped to multiply images; each serves `each` images in a row."""

    def __init__(self, generator: Generator, count: int, like: Tensor, each: int = 1) -> None:
        self.generator, self.count, self.like, self.each = generator, count, like, each

    def uniform(self, low: float, high: float) -> Tensor:
        """Return one number an image, (N, 1, 1, 1)."""
        u = torch.rand(self.count, 1, 1, 1, generator=self.generator)
        return (low + (high - low) * u).to(self.like).repeat_interleave(self.each, 0)

    def normal(self, scale: float) -> Tensor:
        """Return noise of the images' shape."""
        return scale * torch.randn(self.like.shape, generator=self.generator).to(self.like)

    def order(self, count: int) -> list[int]:
        """Return a random order of `count` things."""
        return torch.randperm(count, generator=self.generator).tolist()


def views(x: Tensor, generator: Generator, together: bool = False) -> Tensor:
    """Return one augmented copy of each image, (N, 3, H, W) in 0 to 1.

    Args:
        x: images in 0 to 1.
        generator: of the random numbers.
        together: whether all images get the same draws, but for the noise.
    """
    draw = Draw(generator, 1, x, len(x)) if together else Draw(generator, len(x), x)
    x = moved(jitter(x.clamp(0, 1), draw), draw)
    x = blur(x, draw.uniform(0.001, 0.5))
    x = flipped(x, draw)
    return (x + draw.normal(NOISE)).clamp(0, 1)


def light_views(x: Tensor, generator: Generator) -> Tensor:
    """Return likewise, without blur and noise; beyond the edge the image is mirrored."""
    draw = Draw(generator, len(x), x)
    return flipped(moved(jitter(x.clamp(0, 1), draw), draw, "mirror"), draw).clamp(0, 1)


def moved(x: Tensor, draw: Draw, fill: Literal["mirror"] | None = None) -> Tensor:
    """Turn each image by up to 15 degrees, scale it by up to a tenth, shift it by up to SHIFT."""
    right, down = (whole_pixels(draw.uniform(-SHIFT, SHIFT), side) for side in (x.shape[3], x.shape[2]))
    return affine(x, draw.uniform(-15, 15), right, down, scale=draw.uniform(0.9, 1.1), fill=fill)


def flipped(x: Tensor, draw: Draw) -> Tensor:
    """Flip half of the images."""
    return torch.where(draw.uniform(0, 1) < 0.5, x.flip(3), x)


def jitter(x: Tensor, draw: Draw) -> Tensor:
    """Change brightness, contrast, saturation, hue and gamma, in a random order for the whole batch."""
    steps = (
        lambda y: y * draw.uniform(0.6, 1.4),
        lambda y: mix(y, grey(y).mean(dim=(2, 3), keepdim=True), draw.uniform(0.7, 1.3)),
        lambda y: mix(y, grey(y), draw.uniform(0.5, 1.5)),
        lambda y: turn_hue(y, draw.uniform(-0.06, 0.06)),
        lambda y: y.clamp(min=1e-8) ** draw.uniform(0.7, 1.3),
    )
    for step in draw.order(len(steps)):
        x = steps[step](x).clamp(0, 1)
    return x


def mix(x: Tensor, other: Tensor, share: Tensor) -> Tensor:
    """Return share · x + (1 − share) · other."""
    return other + share * (x - other)


def grey(x: Tensor) -> Tensor:
    """Return the luminance, (N, 1, H, W)."""
    return (x * x.new_tensor(GREY).view(3, 1, 1)).sum(1, keepdim=True)


def turn_hue(x: Tensor, turn: Tensor) -> Tensor:
    """Add `turn` (1 is a full circle) to the hue of HSV; saturation and value stay."""
    value, low = x.amax(1, keepdim=True), x.amin(1, keepdim=True)
    chroma = value - low
    red, green, blue = x.split(1, dim=1)
    safe = chroma.clamp(min=1e-12)
    hue = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )  # in sixths of the circle
    hue = hue + 6 * turn
    offsets = x.new_tensor([5.0, 3.0, 1.0]).view(3, 1, 1)
    k = (offsets + hue) % 6
    return value - chroma * torch.minimum(k, 4 - k).clamp(0, 1)


def whole_pixels(share: Tensor, side: int) -> Tensor:
    """Return a share of the side, rounded to whole pixels."""
    return (share * side).round() / side


def affine(
    x: Tensor,
    degrees: Tensor,
    right: Tensor,
    down: Tensor,
    *,
    scale: Tensor,
    slant_right: Tensor | None = None,
    slant_down: Tensor | None = None,
    fill: Colour | Literal["mirror"] | None = None,
) -> Tensor:
    """Rotate, scale and slant about the centre, then shift by shares of the side.

    Beyond the edge comes the colour `fill`, or half of the image mirrored; without either the edge pixels are repeated.
    """
    angle = degrees.flatten() * (math.pi / 180)
    cos, sin = angle.cos() / scale.flatten(), angle.sin() / scale.flatten()
    lean = [0.0 if slant is None else slant.flatten() for slant in (slant_right, slant_down)]
    ratio = x.shape[2] / x.shape[3]
    top = torch.stack([cos, (sin + lean[0]) * ratio], 1)
    bottom = torch.stack([(lean[1] - sin) / ratio, cos], 1)
    turn = torch.stack([top, bottom], 1)  # (N, 2, 2), from where a pixel comes; the sides are −1 to 1
    shift = 2 * torch.stack([right.flatten(), down.flatten()], 1).unsqueeze(2)
    grid = F.affine_grid(torch.cat([turn, -turn @ shift], 2), list(x.shape), align_corners=False)
    if fill == "mirror":
        height, width = x.shape[2:]
        across, along = width // 2, height // 2
        x = F.pad(x, (across, across, along, along), mode="reflect")
        grid = grid * grid.new_tensor([width / x.shape[3], height / x.shape[2]])
    moved = F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
    if fill is None or fill == "mirror":
        return moved
    inside = (grid.abs() <= 1).all(3).unsqueeze(1)  # as Pillow: no pixel is half image, half colour
    return torch.where(inside, moved, x.new_tensor(fill).view(3, 1, 1))


def blur(x: Tensor, sigma: Tensor) -> Tensor:
    """Blur each image by a 5×5 Gaussian of a separate width."""
    count, channels, height, width = x.shape
    line = torch.arange(-2, 3, device=x.device, dtype=x.dtype)
    kernel = (-(line**2) / (2 * sigma.view(-1, 1) ** 2)).exp()
    kernel = (kernel / kernel.sum(1, keepdim=True)).repeat_interleave(channels, 0)  # (N · 3, 5)
    y = F.pad(x, (2, 2, 2, 2), mode="reflect").reshape(1, count * channels, height + 4, width + 4)
    y = F.conv2d(y, kernel.view(-1, 1, 1, 5), groups=count * channels)
    y = F.conv2d(y, kernel.view(-1, 1, 5, 1), groups=count * channels)
    return y.reshape(x.shape)
