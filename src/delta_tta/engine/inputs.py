"""What a caller may give: a batch of images, and the streams that its samples belong to."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..rules.filters import names_of
from ..signals import Reason, Skip


def checked(images: Tensor, guarded: bool, sync: bool) -> tuple[Tensor, Skip | None]:
    """Return the batch, and what is wrong with its values where the guard lets it pass, with 0 in their place.

    Args:
        images: what the caller gave.
        guarded: whether there is a guard.
        sync: whether other processes adapt along.
    """
    if not isinstance(images, Tensor):
        raise InputError(f"Expected a batch of images as a tensor, but got {type(images).__name__}.")
    odd_floats = images.is_floating_point() and images.element_size() == 1  # which nothing can be computed with
    if images.layout != torch.strided or images.is_nested or images.is_quantized or images.is_meta or odd_floats:
        raise InputError(
            f"Expected a dense tensor of ordinary numbers, but got {'a nested one of ' if images.is_nested else ''}"
            f"{images.dtype}, {images.layout}, on {images.device}. Convert it, for example with .to_dense(), "
            ".dequantize() or .float()."
        )
    if images.dim() < 2 or (images.numel() == 0 and not (sync and len(images) == 0)):
        raise InputError(
            f"Expected a batch with at least one sample, such as (B, C, H, W), but got shape {tuple(images.shape)}."
        )
    x = images.detach()
    if type(x) is not Tensor and type(x).__torch_dispatch__ is Tensor.__torch_dispatch__:
        x = x.as_subclass(Tensor)  # a subclass would pass itself on to all that is made from it, the state included
    # the sum of finite numbers is finite unless it overflows: one quick pass, and a sure one only in doubt
    if x.is_floating_point() and not x.sum().isfinite() and not x.isfinite().all():
        bad = (~x.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
        if not guarded or sync:  # one rank alone cannot leave out a batch
            raise InputError(f"Expected finite values, but samples {bad} of the batch hold NaN or infinity.")
        return x.nan_to_num(0.0, 0.0, 0.0), Skip(Reason.NOT_FINITE, f"input, samples {bad}")
    return x.clone() if x.is_inference() else x, None


def stream_names(stream: Any, size: int, sync: bool) -> list[Hashable] | None:
    """Return the name of each sample's stream; None where all are of one."""
    if stream is None:
        return None
    if sync:
        raise InputError("Expected no `stream` with sync=True: the ranks' shares of a batch are filtered as one.")
    if isinstance(stream, Tensor) and stream.dim():
        stream = stream.tolist()
    return names_of(stream, size)
