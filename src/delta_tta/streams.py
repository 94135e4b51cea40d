"""The paper's four test streams, bit for bit, and streams over several domains.

A stream is an order in which the samples of a data set arrive. It is named by a `StreamSpec`, which prints as the paper
writes it, and identified by a digest of its indices, so that two results can be known to be about the same stream.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from .errors import StreamError, nearest
from .files import digest

Scenario = Literal["IS+CB", "DS+CB", "IS+CI", "DS+CI", "natural", "videos"]
Indices = npt.NDArray[np.int64]

NAMED = 5
"""Missing classes that a message names."""
PIECES = 10
"""J: into how many pieces a dependent stream divides every class."""


@dataclass(frozen=True)
class StreamSpec:
    """Everything but the labels that determines a stream.

    Attributes:
        scenario: independent (IS) or dependent (DS) samples, class-balanced (CB) or -imbalanced (CI); "natural", the
            order of the data set; or "videos", whole videos in random order, each as it was filmed.
        rho: ρ of DS, the concentration: the smaller, the longer a class fills the view.
        pi: π of CI, the size of the rarest class relative to the most frequent.
        seed: of all random draws; the paper names 2020 to 2023.
        pieces: J of DS.

    Examples:
        >>> print(StreamSpec("DS+CI", rho=0.5, pi=0.05))
        DS+CI (ρ=0.5, π=0.05), seed 2020
        >>> StreamSpec.parse("DS+CI (ρ=0.5, π=0.05), seed 2020") == StreamSpec("DS+CI", rho=0.5, pi=0.05)
        True
    """

    scenario: Scenario
    rho: float | None = None
    pi: float | None = None
    seed: int = 2020
    pieces: int = PIECES

    def __post_init__(self) -> None:
        if self.scenario not in get_args(Scenario):
            raise StreamError(f"Unknown scenario {self.scenario!r}.{nearest(str(self.scenario), get_args(Scenario))}")
        for name, letter, wanted, fine, words in (
            ("rho", "ρ", self.dependent, self.rho is not None and 0 < self.rho < float("inf"), "greater than 0"),
            ("pi", "π", self.imbalanced, self.pi is not None and 0 < self.pi <= 1, "in (0, 1]"),
        ):
            value = getattr(self, name)
            if wanted and value is None:
                raise StreamError(f"{self.scenario} needs `{name}` ({letter}), {words}, such as {name}=0.1.")
            if wanted and not fine:
                raise StreamError(f"Expected `{name}` ({letter}) of {self.scenario} to be {words}, but got {value!r}.")
            if not wanted and value is not None:
                raise StreamError(f"{self.scenario} has no `{name}` ({letter}), but got {value!r}; leave it out.")
        _check_seed(self.seed)
        if not isinstance(self.pieces, int) or self.pieces < 1:
            raise StreamError(f"Expected `pieces` (J) to be an integer of at least 1, but got {self.pieces!r}.")

    @property
    def dependent(self) -> bool:
        """Whether samples of a class come in runs (DS)."""
        return self.scenario.startswith("DS")

    @property
    def imbalanced(self) -> bool:
        """Whether classes are resampled to unequal frequencies (CI)."""
        return self.scenario.endswith("CI")

    def __str__(self) -> str:
        """Write it as the paper does."""
        if self.scenario == "natural":
            return "natural"
        values = [f"ρ={_number(self.rho)}"] if self.dependent else []
        values += [f"π={_number(self.pi)}"] if self.imbalanced else []
        values += [f"J={self.pieces}"] if self.dependent and self.pieces != PIECES else []
        return self.scenario + (f" ({', '.join(values)})" if values else "") + f", seed {self.seed}"

    @classmethod
    def parse(cls, text: str) -> StreamSpec:
        """Read what `str` writes, or the same without brackets: "DS+CB,rho=0.1" needs no quotes in a shell."""
        pairs = r"\(([^)]*)\)|((?:\s*,\s*\w+\s*=[^,]*)*)"
        match = re.fullmatch(rf"\s*([^\s(,]+)\s*(?:{pairs})\s*(?:,\s*seed\s+(\d+))?\s*", text)
        names = {"ρ": "rho", "rho": "rho", "π": "pi", "pi": "pi", "J": "pieces"}
        values: dict[str, float] = {}
        try:
            assert match is not None
            for pair in filter(None, (match[2] or match[3] or "").split(",")):
                letter, value = pair.split("=")
                values[names[letter.strip()]] = float(value) if letter.strip() != "J" else int(value)
        except (AssertionError, ValueError, KeyError) as error:
            raise StreamError(
                f"Expected a stream such as 'DS+CI (ρ=0.5, π=0.05), seed 2020', but got {text!r}."
            ) from error
        seed = {"seed": int(match[4])} if match[4] else {}
        return cls(match[1], **values, **seed)  # type: ignore[arg-type]  # checked by __post_init__


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
        self.digest = _digest(self.indices)

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
    classes = _checked(labels)
    draws = Draws.of(seed)
    order = np.arange(len(classes), dtype=np.int64)
    if spec.imbalanced:
        assert pi is not None
        order = imbalanced_indices(classes, pi, draws)
    if spec.dependent:
        assert rho is not None
        order = order[dependent_indices(classes[order], rho, draws, pieces)]
    elif spec.scenario == "videos":
        order = _by_video(len(classes), groups, draws.python)
    elif spec.scenario != "natural":
        order = order[shuffled_indices(len(order), draws)]
    return Stream(spec, order, len(classes))


class Draws(NamedTuple):
    """The two generators that the paper's numbers came from, for functions of which one goes on where another stopped.

    Attributes:
        numpy: draws frequencies and samples.
        python: shuffles.
    """

    numpy: np.random.RandomState
    python: random.Random

    @classmethod
    def of(cls, seed: int | Draws) -> Draws:
        """Return new generators of this seed, or those that are given."""
        if isinstance(seed, Draws):
            return seed
        _check_seed(seed)
        return cls(np.random.RandomState(seed), random.Random(seed))


def shuffled_indices(count: int, seed: int | Draws = 2020) -> Indices:
    """Return 0 to count − 1 in random order, (count,): the stream IS+CB.

    Args:
        count: of samples.
        seed: of the order; or generators, which go on.

    Examples:
        >>> shuffled_indices(6).tolist()
        [0, 3, 2, 1, 5, 4]
    """
    order = list(range(count))
    Draws.of(seed).python.shuffle(order)
    return np.array(order, dtype=np.int64)


def imbalanced_indices(labels: npt.ArrayLike, pi: float, seed: int | Draws = 2020) -> Indices:
    """Draw with replacement, class by class: n_c = floor(p_c N) + 1 with p_c ∝ π^(c / (K−1)), class 0 the head.

    The stream IS+CI is these indices in the order of `shuffled_indices`.

    Args:
        labels: the class of each sample, (N,), 0 to K − 1.
        pi: π, the size of the rarest class relative to the most frequent, in (0, 1].
        seed: of the draws; or generators, which go on.

    Examples:
        >>> labels = np.repeat([0, 1, 2], 4)
        >>> labels[imbalanced_indices(labels, pi=0.1)].tolist()
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2]
    """
    StreamSpec("IS+CI", pi=pi)  # raises where π is wrong
    classes, draws = _without_gaps(labels), Draws.of(seed)
    last = classes.max()
    weights = np.array([pi ** (c / last) if last else 1.0 for c in range(last + 1)])
    sizes = np.floor(weights / weights.sum() * len(classes)).astype(int) + 1
    return np.concatenate([draws.numpy.choice(np.flatnonzero(classes == c), sizes[c]) for c in range(last + 1)])


def dependent_indices(labels: npt.ArrayLike, rho: float, seed: int | Draws = 2020, pieces: int = PIECES) -> Indices:
    """Cut every class into J pieces by Dirichlet(ρ); piece by piece, let the classes follow in random order.

    This is the stream DS+CB, (N,). For DS+CI, `labels` are those of what `imbalanced_indices` drew, and both take the
    same `Draws`.

    Args:
        labels: the class of each sample, (N,), 0 to K − 1.
        rho: ρ, above 0: the smaller, the longer a class fills the view.
        seed: of the draws; or generators, which go on.
        pieces: J.

    Examples:
        >>> labels = np.repeat([0, 1, 2], 4)
        >>> labels[dependent_indices(labels, rho=0.1)].tolist()
        [0, 0, 0, 2, 1, 1, 1, 2, 2, 1, 0, 2]
    """
    StreamSpec("DS+CB", rho=rho, pieces=pieces)  # raises where ρ or J is wrong
    found, draws = _without_gaps(labels), Draws.of(seed)
    classes = int(found.max()) + 1
    shares = draws.numpy.dirichlet([rho] * pieces, classes)  # (K, J)
    runs = []
    for c in range(classes):
        own = np.flatnonzero(found == c)
        runs.append(np.split(own, (shares[c].cumsum()[:-1] * len(own)).astype(int)))
    order = []
    for piece in range(pieces):
        turn = list(range(classes))
        draws.python.shuffle(turn)
        order += [runs[c][piece] for c in turn]
    return np.concatenate(order)


def _by_video(count: int, groups: Sequence[str] | None, python: random.Random) -> Indices:
    """Shuffle the videos; the samples of each stay in their order."""
    if groups is None or len(groups) != count:
        came = "none" if groups is None else f"{len(groups)}"
        raise StreamError(
            f"Expected the video of each of the {count} samples as `groups` for the scenario 'videos', but got {came}. "
            "Data that is no video has no such order: take 'natural'."
        )
    places: dict[str, list[int]] = {}
    for place, video in enumerate(groups):
        places.setdefault(video, []).append(place)
    names = list(places)
    python.shuffle(names)
    return np.array([place for name in names for place in places[name]], dtype=np.int64)


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
        self.digest = _digest(np.stack([which, indices]))

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


def _number(value: float | None) -> str:
    """Write 1.0 as 1, and never lose a digit."""
    return f"{value:g}" if value == float(f"{value:g}") else repr(value)


def _digest(indices: Indices) -> str:
    return digest(np.ascontiguousarray(indices, dtype="<i8").tobytes(), 16)


def _checked(labels: npt.ArrayLike) -> Indices:
    array = np.asarray(labels)
    if array.ndim != 1 or len(array) == 0 or not np.issubdtype(array.dtype, np.integer):
        raise StreamError(
            f"Expected `labels` to be a sequence of integers, one for each sample, but got {array.dtype} of shape "
            f"{array.shape}."
        )
    if array.min() < 0:
        raise StreamError(f"Expected `labels` to count from 0, but the smallest is {array.min()}.")
    return array.astype(np.int64)


def _without_gaps(labels: npt.ArrayLike) -> Indices:
    classes = _checked(labels)
    known, last = np.unique(classes), int(classes.max())
    if len(known) <= last:  # not by counting up to `last`, which may be anything
        missing = np.setdiff1d(np.arange(min(last, len(known) + NAMED)), known)[:NAMED].tolist()
        raise StreamError(
            f"Expected samples of every class from 0 to {last}, but there are none of {missing}"
            f"{' and others' if last + 1 - len(known) > len(missing) else ''}. Number the classes without gaps."
        )
    return classes


def _check_seed(seed: int) -> None:
    if not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise StreamError(f"Expected `seed` to be an integer from 0 to 2**32 - 1, but got {seed!r}.")
