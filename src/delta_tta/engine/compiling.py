"""torch.compile under an adapter: which model it is around, and how it runs without being compiled again and again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..norms import AdaptiveNorm
from ..norms.fused import make_fused

GRAPHS = 64
"""Graphs of one model at most; torch's usual 8 are few where layers are not fused (`norms/fused.py`)."""


def unwrapped(model: nn.Module) -> tuple[nn.Module, nn.Module | None]:
    """Return the model that torch.compile has wrapped, and the wrapper; of any other model the model itself and None.

    Args:
        model: as the user gave it.
    """
    wraps = type(model).__name__ == "OptimizedModule" and hasattr(model, "dynamo_ctx")  # importing it takes a second
    return (model._orig_mod, model) if wraps else (model, None)  # type: ignore[return-value]


class CompiledRun:
    """Calls a compiled model, for batches of any size."""

    def __init__(self, model: nn.Module, wrapper: nn.Module | None) -> None:
        compiled: Callable[[Tensor], object] = torch.compile(model) if wrapper is None else wrapper
        self._compiled = compiled
        make_fused(m for m in model.modules() if isinstance(m, AdaptiveNorm))

    def __call__(self, x: Tensor) -> object:
        """Run it; the first runs compile."""
        torch._dynamo.maybe_mark_dynamic(x, 0)  # the last batch of a stream is smaller
        with torch._dynamo.config.patch(cache_size_limit=GRAPHS):
            return self._compiled(x)
