"""A stream over one data set, as a torch sampler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from ..files import digest
from .indices import (
    Draws,
    Indices,
    checked_labels,
    dependent_indices,
    imbalanced_indices,
    shuffled_indices,
    video_indices,
)
from .spec import PIECES, Scenario, StreamSpec


class Stream(Sampler[int]):
    """An order of samples; a torch `Sampler`, so `DataLoader(dataset, sampler=stream, batch_size=…)` follows it.

    Attributes:
        spec: what made it.
        indices: positions in the data set, in the order of arrival; a sample may come more than once (CI) or never.
        size: how many samples the data set has.
        digest: first 16 hex digits of sha256 over the little-endian int64 indices.
    """

    def __init__(self, spec: StreamSpec, indices: Indices, size: int) -> None:
        self.spec = spec
        self.indices = np.ascontiguousarray(indices, dtype="<i8")
        self.indices.setflags(write=False)
        self.size = size
        self.digest = digest_of(self.indices)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices.tolist())

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"Stream({self.spec}, {len(self)} samples, digest {self.digest})"


def stream(
    labels: npt.ArrayLike,
    scenario: Scenario,
    *,
    rho: float | None = None,
    pi: float | None = None,
    seed: int = 2020,
    pieces: int = PIECES,
    groups: Sequence[str] | None = None,
) -> Stream:
    """Order the samples with these labels as the paper does; the caller's random state is not touched.

    Args:
        labels: the class of each sample of the data set, integers from 0.
        scenario: "IS+CB", "DS+CB", "IS+CI", "DS+CI", "natural" or "videos".
        rho: see `StreamSpec`, as are the others.
        pi: see `StreamSpec`.
        seed: see `StreamSpec`.
        pieces: see `StreamSpec`.
        groups: the video of each sample, for "videos" alone.

    Examples:
        >>> stream([0, 0, 1, 1], "IS+CB")
        Stream(IS+CB, seed 2020, 4 samples, digest c037c842b1b6d83b)
    """
    spec = StreamSpec(scenario, rho, pi, seed, pieces)
    classes = checked_labels(labels)
    draws = Draws.of(seed)
    order = np.arange(len(classes), dtype=np.int64)
    if spec.imbalanced:
        assert pi is not None
        order = imbalanced_indices(classes, pi, draws)
    if spec.dependent:
        assert rho is not None
        order = order[dependent_indices(classes[order], rho, draws, pieces)]
    elif spec.scenario == "videos":
        order = video_indices(len(classes), groups, draws.python)
    elif spec.scenario != "natural":
        order = order[shuffled_indices(len(order), draws)]
    return Stream(spec, order, len(classes))


def digest_of(indices: Indices) -> str:
    """Return what identifies a stream: the first 16 hex digits of sha256."""
    return digest(np.ascontiguousarray(indices, dtype="<i8").tobytes(), 16)
