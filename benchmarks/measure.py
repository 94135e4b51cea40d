"""Interleaved timing and memory measurement."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def interleaved(
    variants: dict[str, Callable[[], Any]],
    seconds: float,
    after: Callable[[], Any] = lambda: None,
    rounds: tuple[int, int] = (9, 41),
) -> dict[str, list[float]]:
    """Time all variants in turn, round after round, so that they meet the same machine.

    Args:
        variants: what to time.
        seconds: how long to go on.
        after: called untimed after each variant.
        rounds: at least and at most so many are made.
    """
    times: dict[str, list[float]] = {name: [] for name in variants}
    end = None
    least, most = rounds
    for i in range(3 + most):
        for name, run in variants.items():
            start = time.perf_counter()
            run()
            elapsed = time.perf_counter() - start
            after()
            if i >= 3:  # the first rounds warm up
                times[name].append(elapsed)
        end = end or time.perf_counter() + seconds
        if i >= 2 + least and time.perf_counter() > end:
            break
    return times


def ratio(times: dict[str, list[float]], over: str, under: str) -> float:
    """Median of the ratios within each round."""
    return statistics.median(a / b for a, b in zip(times[over], times[under], strict=True))


def bytes_saved(forward: Callable[[], Any], x: Tensor, model: nn.Module) -> int:
    """Bytes that a forward pass keeps for its backward pass, apart from the model's own tensors."""
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers(), x)}
    kept: dict[int, tuple[int, Tensor]] = {}  # the tensors are kept alive, so that no address is used twice

    def pack(t: Tensor) -> Tensor:
        if t.untyped_storage().data_ptr() not in own:
            kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes(), t
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        forward()
    return sum(size for size, _ in kept.values())
