"""How much neighbouring pixels differ: the images' sharpness, by which `rules/` tells domains apart."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from ..distributed import Ranks
from ..evidence import Array
from ..rules.domain import every_nth_row, sharpness_of_batch, sharpness_of_samples


def differences(x: Tensor, ranks: Ranks | None = None) -> npt.NDArray[Any] | None:
    """Return mean and mean square of the second differences along the width, of all ranks' images, (B, C, 2).

    Args:
        x: images (B, C, …, W).
        ranks: the processes whose batches count as one.

    Returns:
        None where the input has no height and width.
    """
    if x.dim() < 4 or x.shape[-1] < 3 or x.is_complex():
        return None
    pixels = x[..., :: every_nth_row(x.shape[-2]), :].float()
    bends = (pixels[..., 2:] - 2 * pixels[..., 1:-1] + pixels[..., :-2]).flatten(2)  # (B, C, n)
    found = torch.stack([bends.mean(2), bends.square().mean(2)], 2)
    if ranks is not None:
        found = ranks.join(found.flatten(1)).unflatten(1, (-1, 2))
    return found.detach().double().cpu().numpy()


def sharpness(x: Tensor, ranks: Ranks | None = None) -> Array | None:
    """Return the sharpness of each channel of a batch, (C,); None where there is none to be had."""
    found = differences(x, ranks)
    return None if found is None else sharpness_of_batch(found)


def sharpness_of_each(x: Tensor, ranks: Ranks | None = None) -> Array | None:
    """Return the sharpness of each sample, (B,); None where there is none to be had."""
    found = differences(x, ranks)
    return None if found is None else sharpness_of_samples(found)
