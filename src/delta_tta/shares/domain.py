"""The sharpness of a batch of images, by which `rules/domain.py` tells domains apart."""

from __future__ import annotations

import torch
from torch import Tensor

from ..distributed import Ranks
from ..evidence import Array
from ..rules.domain import every_nth_row, sharpness_of


def sharpness(x: Tensor, ranks: Ranks | None = None) -> Array | None:
    """Return the sharpness of each channel of a batch (B, C, …, W), (C,); None where there is none to be had."""
    if x.dim() < 4 or x.shape[-1] < 3 or x.is_complex():
        return None
    pixels = x[..., :: every_nth_row(x.shape[-2]), :].float()
    bends = (pixels[..., 2:] - 2 * pixels[..., 1:-1] + pixels[..., :-2]).transpose(0, 1).flatten(1)  # (C, n)
    sums: list[Tensor | None] = [
        torch.stack([torch.full_like(bends.sum(1), bends.shape[1]), bends.sum(1), bends.square().sum(1)])
    ]
    if ranks is not None:
        sums = ranks.add(sums)
    assert sums[0] is not None
    return sharpness_of(sums[0].double().cpu().numpy())
