"""Runs a filter over a batch, also over the ranks' shares of one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from torch import Tensor

from ..distributed import Ranks
from ..shares.sharpness import sharpness_of_each
from ..tensors import at_least_float32
from .base import Filter


def filtered(
    kept: Filter, x: Tensor, logits: Tensor, streams: Sequence[Hashable] | None, ranks: Ranks | None
) -> tuple[Tensor, Any]:
    """Return the filtered logits, and the filter's state after all of the batch.

    Args:
        kept: gets the sharpness of each sample if its `reads_sharpness` is true.
        x: the batch of this rank.
        logits: of this rank.
        streams: of each sample, the stream it belongs to; None: all to one.
        ranks: the processes whose batches are filtered as one; None for this process alone.
    """
    more = {"sharpness": sharpness_of_each(x, ranks)} if kept.reads_sharpness else {}
    if ranks is None:
        answers, after = kept.answer(logits, streams, **more)
        return answers, after
    answers, after = kept.answer(ranks.join(at_least_float32(logits)), None, **more)
    return answers[ranks.share].to(logits.dtype), after
