"""The draws of the paper's streams: indices into a data set, in the order of arrival."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import StreamError
from .spec import PIECES, StreamSpec, check_seed

Indices = npt.NDArray[np.int64]

NAMED = 5
"""Missing classes that a message names."""


class Draws(NamedTuple):
    """The two generators that the paper's numbers came from, for functions that continue each other's draws.

    Attributes:
        numpy: draws frequencies and samples.
        python: shuffles.

    Examples:
        >>> draws = Draws.of(2020)
        >>> shuffled_indices(4, draws).tolist(), shuffled_indices(4, draws).tolist()  # the second continues
        ([0, 3, 2, 1], [0, 2, 1, 3])
    """

    numpy: np.random.RandomState
    python: random.Random

    @classmethod
    def of(cls, seed: int | Draws) -> Draws:
        """Return new generators of this seed, or those that are given."""
        if isinstance(seed, Draws):
            return seed
        check_seed(seed)
        return cls(np.random.RandomState(seed), random.Random(seed))


def shuffled_indices(count: int, seed: int | Draws = 2020) -> Indices:
    """Return 0 to count − 1 in random order, (count,): the stream IS+CB.

    Args:
        count: of samples.
        seed: of the order; or generators, whose draws continue.

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
        seed: of the draws; or generators, whose draws continue.

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
        seed: of the draws; or generators, whose draws continue.
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


def video_indices(count: int, groups: Sequence[str] | None, python: random.Random) -> Indices:
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


def checked_labels(labels: npt.ArrayLike) -> Indices:
    """Return the labels as int64, if they are integers from 0."""
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
    classes = checked_labels(labels)
    known, last = np.unique(classes), int(classes.max())
    if len(known) <= last:  # not by counting up to `last`, which may be anything
        missing = np.setdiff1d(np.arange(min(last, len(known) + NAMED)), known)[:NAMED].tolist()
        raise StreamError(
            f"Expected samples of every class from 0 to {last}, but there are none of {missing}"
            f"{' and others' if last + 1 - len(known) > len(missing) else ''}. Number the classes without gaps."
        )
    return classes
