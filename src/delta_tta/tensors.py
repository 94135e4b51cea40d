"""Tensors in half precision, and tensors that a model changes in place."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Return x, in float32 if it was in half precision: moving averages need the digits."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def follow(fn: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return x on the device and in the type that fn moves it to, but not in half precision."""
    moved = fn(x)
    return x.to(moved.device, torch.promote_types(moved.dtype, torch.float32))


def changes(x: Tensor) -> int | None:
    """Return how often x was changed in place; None where nobody counts."""
    return None if torch.compiler.is_compiling() or x.is_inference() else x._version


def changed_since(x: Tensor, before: int | None) -> bool:
    """Whether x was changed in place since `changes` returned `before`, as far as that is known."""
    now = changes(x)
    return before is not None and now is not None and now != before


def overwritten(layer: str) -> str:
    """Return the message of an error about features that are needed, and that the model has changed."""
    return (
        f"The model changes the input of layer {layer!r} in place after the layer has run, and learning needs that "
        "input as it was. Let it compute a new tensor, such as h * 3 instead of h.mul_(3), or use a method without a "
        "loss, such as 'tema'."
    )
