"""The paper's four test streams, bit for bit, and streams over several domains.

A stream is an order in which the samples of a data set arrive. It is named by a `StreamSpec`, which prints as the paper
writes it, and identified by a digest of its indices, so that two results can be known to be about the same stream.
"""

from __future__ import annotations

from ..errors import StreamError
from .domains import DomainStream, continual, gradual, mixed
from .indices import Draws, Indices, dependent_indices, imbalanced_indices, shuffled_indices
from .sampler import Stream, stream
from .spec import PIECES, Scenario, StreamSpec

__all__ = [
    "PIECES",
    "DomainStream",
    "Draws",
    "Indices",
    "Scenario",
    "Stream",
    "StreamError",
    "StreamSpec",
    "continual",
    "dependent_indices",
    "gradual",
    "imbalanced_indices",
    "mixed",
    "shuffled_indices",
    "stream",
]
