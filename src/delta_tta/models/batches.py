"""The batches of a training: shuffled, randomly cropped and mirrored, all from (seed, epoch, step)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.crops import DRAWS, random_view
from ..data.sets import ImageSet, as_tensor
from ..files import digest


def batches(
    images: ImageSet, seed: int, epoch: int, first: int, steps: int, pool: ThreadPoolExecutor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what is left of an epoch, images and labels; while one batch trains, the next is read.

    Args:
        images: to learn from.
        seed: of the training.
        epoch: which, from 0.
        first: the step to begin with.
        steps: of an epoch.
        pool: reads the images.
    """
    shuffled = _generator(seed, epoch)
    order = torch.randperm(len(images), generator=shuffled)
    parts = order.tensor_split(steps)  # of one size, or one image less

    def read(step: int) -> list[Any]:
        drawn = _generator(seed, epoch, step)
        draws = torch.rand(len(parts[step]), DRAWS, generator=drawn, dtype=torch.float64).tolist()
        places = parts[step].tolist()
        return [pool.submit(random_view, images, *one) for one in zip(places, draws, strict=True)]

    ahead = read(first)
    for step in range(first, steps):
        now, ahead = ahead, read(step + 1) if step + 1 < steps else []
        views = np.stack([view.result() for view in now])
        yield as_tensor(views), torch.from_numpy(images.labels)[parts[step]]


def seed_of(*parts: object) -> int:
    """Return a seed that no other parts share."""
    return int.from_bytes(bytes.fromhex(digest(repr(parts), 14)), "little")


def _generator(*parts: object) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(*parts))
