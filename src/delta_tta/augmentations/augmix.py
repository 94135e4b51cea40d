"""AugMix (Hendrycks et al. 2020), batched: all images and all chains at once, in torch.

A copy is m · x + (1 − m) · Σ_i w_i chain_i(x) with w ~ Dirichlet(1, 1, 1), m ~ Beta(1, 1), each chain one to three
operations at random. MEMO crops and mirrors the image first.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from .crops import BLACK, crops
from .views import Colour, Draw, affine

CHAINS = 3
DEPTH = 3
DARK_RED = (128 / 255, 0.0, 0.0)
"""Beyond the edge in MEMO: its program says 128, which Pillow reads as a colour whose lowest byte is red."""


def augmix(images: Tensor, copies: int, generator: Generator) -> Tensor:
    """Return MEMO's copies of images, (N, 3, H, W) in 0 to 1, as (copies, N, 3, H, W); the draws are as in `crops`."""
    return mix_chains(crops(images, copies, generator), generator, fill=DARK_RED)


def mix_chains(x: Tensor, generator: Generator, severity: float = 1.0, fill: Colour = BLACK) -> Tensor:
    """Return x, (draws, N, 3, H, W), mixed with its chains; each of the draws is one for N images.

    Args:
        x: images in 0 to 1.
        generator: of the random numbers.
        severity: of the operations: 1 for MEMO, 3 for training as AugMix does.
        fill: the colour of what comes in from beyond the edge; AugMix takes black.
    """
    draws, count = x.shape[:2]
    exponential = -torch.rand(CHAINS, draws, generator=generator).clamp(min=1e-12).log()
    weights = (exponential / exponential.sum(0)).to(x).view(CHAINS, draws, 1, 1, 1, 1)  # Dirichlet(1, 1, 1)
    share = torch.rand(draws, 1, 1, 1, 1, generator=generator).to(x)  # Beta(1, 1)
    chains = x.repeat(CHAINS, 1, 1, 1, 1)
    depth = torch.randint(1, DEPTH + 1, (len(chains),), generator=generator)
    for step in range(DEPTH):
        choice = torch.randint(0, len(OPERATIONS), (len(chains),), generator=generator)
        for number, operation in enumerate(OPERATIONS):
            here = ((choice == number) & (depth > step)).nonzero().flatten().to(x.device)
            if len(here):
                level = Level(generator, len(here), x, count, severity, fill)
                chains[here] = operation(chains[here].flatten(0, 1), level).unflatten(0, (len(here), -1))
    mixed = (weights * chains.view(CHAINS, *x.shape)).sum(0)
    return share * x + (1 - share) * mixed


class Level(Draw):
    """Draws of how strong an operation is: from a tenth of a tenth of its range to `severity` tenths."""

    def __init__(
        self, generator: Generator, count: int, like: Tensor, each: int, severity: float, fill: Colour = BLACK
    ) -> None:
        super().__init__(generator, count, like, each)
        self.severity, self.fill = severity, fill

    def level(self) -> Tensor:
        """Return 0.1 to `severity`, one number an image."""
        return self.uniform(0.1, self.severity)

    def sign(self) -> Tensor:
        """Return 1 or −1, one number an image."""
        return torch.where(self.uniform(0, 1) < 0.5, -1.0, 1.0).to(self.like)


def autocontrast(x: Tensor, draw: Level) -> Tensor:
    """Stretch each channel to 0 to 1."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp(min=1e-6), x)


def equalise(x: Tensor, draw: Level) -> Tensor:
    """Flatten the histogram of each channel, over 256 levels, as Pillow does."""
    count, channels, height, width = x.shape
    levels = (x.clamp(0, 1) * 255).round().long().view(count * channels, -1)
    histogram = torch.zeros(count * channels, 256, dtype=torch.long, device=x.device)
    histogram.scatter_add_(1, levels, torch.ones_like(levels))
    last = histogram.gather(1, levels.amax(1, keepdim=True))  # how often the brightest level comes
    step = (height * width - last) // 255
    below = histogram.cumsum(1) - histogram
    table = torch.where(step > 0, (step // 2 + below) // step.clamp(min=1), torch.arange(256, device=x.device))
    return table.clamp(max=255).gather(1, levels).view(x.shape).to(x.dtype) / 255


def posterise(x: Tensor, draw: Level) -> Tensor:
    """Keep the upper 4 − ⌊0.4 · level⌋ bits: at MEMO's levels 4."""
    bits = 4 - (0.4 * draw.level()).floor() if draw.severity >= 2.5 else 4
    kept = 2 ** (8 - bits)
    posterised: Tensor = (x.clamp(0, 1) * 255 / kept).floor() * kept / 255
    return posterised


def solarise(x: Tensor, draw: Level) -> Tensor:
    """Invert what is at least 256 − ⌊25.6 · level⌋ of 255."""
    threshold = (256 - (25.6 * draw.level()).floor()) / 255
    return torch.where(x >= threshold - 1e-6, 1 - x, x)


def rotate(x: Tensor, draw: Level) -> Tensor:
    """Turn by ⌊3 · level⌋ degrees."""
    return _moved(x, draw, degrees=(3 * draw.level()).floor() * draw.sign())


def shear_x(x: Tensor, draw: Level) -> Tensor:
    """Slant rows by 0.03 · level; the first stays where it is."""
    slant = 0.03 * draw.level() * draw.sign()
    return _moved(x, draw, slant_right=slant, right=-slant / 2 * x.shape[2] / x.shape[3])


def shear_y(x: Tensor, draw: Level) -> Tensor:
    """Slant columns by 0.03 · level; the first stays where it is."""
    slant = 0.03 * draw.level() * draw.sign()
    return _moved(x, draw, slant_down=slant, down=-slant / 2 * x.shape[3] / x.shape[2])


def translate_x(x: Tensor, draw: Level) -> Tensor:
    """Shift sideways by a thirtieth of the width times the level, in whole pixels."""
    return _moved(x, draw, right=_thirtieth(x.shape[3], draw))


def translate_y(x: Tensor, draw: Level) -> Tensor:
    """Shift up or down by a thirtieth of the height times the level, in whole pixels."""
    return _moved(x, draw, down=_thirtieth(x.shape[2], draw))


def _thirtieth(side: int, draw: Level) -> Tensor:
    return (draw.level() * side / 30).floor() / side * draw.sign()


def _moved(x: Tensor, draw: Level, **moves: Tensor) -> Tensor:
    nothing = x.new_zeros(len(x), 1, 1, 1)
    still = {"degrees": nothing, "right": nothing, "down": nothing, "scale": nothing + 1}
    return affine(x, **{**still, **moves}, fill=draw.fill)


OPERATIONS: tuple[Callable[[Tensor, Level], Tensor], ...] = (
    autocontrast,
    equalise,
    posterise,
    rotate,
    solarise,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
)
