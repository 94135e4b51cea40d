"""Streams over several domains: one after another, all at once, or coming and going."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
from torch.utils.data import Sampler

from ..errors import StreamError
from .indices import Indices
from .sampler import Stream, digest_of


class DomainStream(Sampler[int]):
    """A stream over several domains: versions of one data set, such as its corruptions.

    As a sampler it gives positions in `ConcatDataset([version of the data set for each of `domains`])`.

    Attributes:
        kind: "continual", "mixed" or "gradual".
        domains: their names.
        which: the domain of each arriving sample, a position in `domains`.
        indices: its position in the data set.
        digest: as a stream's, over domains and indices.
    """

    def __init__(self, kind: str, within: Stream, domains: Sequence[str], which: Indices, indices: Indices) -> None:
        self.kind, self.within, self.domains = kind, within, tuple(domains)
        self.which, self.indices = which, indices
        self.digest = digest_of(np.stack([which, indices]))

    def __iter__(self) -> Iterator[int]:
        return iter((self.which * self.within.size + self.indices).tolist())

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"{self.kind} over {len(self.domains)} domains, each {self.within!r}"


def continual(within: Stream, domains: Sequence[str]) -> DomainStream:
    """One domain after the other, each in the order of `within`; made to be run without a reset."""
    return _visits("continual", within, domains, range(len(domains)))


def gradual(
    within: Stream, corruptions: Sequence[str], severities: Sequence[int] = (1, 2, 3, 4, 5, 4, 3, 2, 1)
) -> DomainStream:
    """Each corruption comes and goes: the domains are "fog-1" to "fog-5" and so on, visited as `severities` says."""
    levels = sorted(set(severities))
    domains = [f"{corruption}-{level}" for corruption in corruptions for level in levels]
    turns = [i * len(levels) + levels.index(s) for i in range(len(corruptions)) for s in severities]
    return _visits("gradual", within, domains, turns)


def mixed(within: Stream, domains: Sequence[str], seed: int = 2020) -> DomainStream:
    """All domains at once, shuffled together."""
    ordered = continual(within, domains)
    turn = list(range(len(ordered)))
    random.Random(seed).shuffle(turn)
    return DomainStream("mixed", within, domains, ordered.which[turn], ordered.indices[turn])


def _visits(kind: str, within: Stream, domains: Sequence[str], turns: Sequence[int]) -> DomainStream:
    if not domains or len(set(domains)) != len(domains):
        raise StreamError(f"Expected one or more domains with different names, but got {list(domains)}.")
    which = np.repeat(np.array(turns, dtype=np.int64), len(within))
    return DomainStream(kind, within, domains, which, np.tile(within.indices, len(turns)))
