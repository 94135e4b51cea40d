"""Runs a model so that it keeps fewer bytes for its backward pass: of a ReLU one bit a value, not its output.

Of a norm layer, a ReLU and a convolution that does not train, autograd keeps the input of the norm layer and the output
of the ReLU, which is the input of the convolution. The gradient of the ReLU needs only to know which values passed, and
that of such a convolution, as of a pooling layer, only the shape of its input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

RELUS = (F.relu, torch.relu, Tensor.relu, torch.relu_, Tensor.relu_)
IN_PLACE = (torch.relu_, Tensor.relu_)
CONVOLUTIONS = (
    *(torch.conv1d, torch.conv2d, torch.conv3d),
    *(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d),
)
POOLS = (F.max_pool2d, torch.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d)
"""What reads of its input, in the backward pass, the shape alone; a convolution if its weight does not train."""


class LowMemory:
    """Calls a model."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def __call__(self, x: Tensor) -> object:
        """Run it."""
        if not torch.is_grad_enabled():
            return self._model(x)
        with _Bits():
            return self._model(x)


class _Bits(TorchFunctionMode):
    """Replaces the activations that are called inside."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function of torch, or what replaces it."""
        given = kwargs or {}
        if func in POOLS and args:
            return _keeping_shape(func, args, given)
        if func in CONVOLUTIONS and len(args) > 1 and not args[1].requires_grad:
            return _keeping_shape(func, args, given)
        if func in RELUS:
            inplace = func in IN_PLACE or _relu_in_place(*args, **given)
            return _rectified(args, given, None, inplace) if args else func(*args, **given)
        if func is F.relu6 and args:
            return _rectified(args, given, (0.0, 6.0), _relu_in_place(*args, **given))
        if func is F.hardtanh and args:
            *bounds, inplace = _hardtanh(*args, **given)
            return _rectified(args, given, (bounds[0], bounds[1]), inplace)
        return func(*args, **given)


def _keeping_shape(func: Callable[..., Any], args: tuple[Any, ...], given: Mapping[str, Any]) -> Any:
    """Call a function, and keep of its input what an empty tensor is made from."""
    x: Tensor = args[0]
    place = x.data_ptr(), x.shape, x.stride()  # not x itself: autograd keeps `pack`, which would keep x

    def pack(t: Tensor) -> Tensor | tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device]:
        is_input = (t.data_ptr(), t.shape, t.stride()) == place
        return (t.shape, t.stride(), t.dtype, t.device) if is_input else t

    def unpack(kept: Any) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        shape, stride, dtype, device = kept
        return torch.empty_strided(shape, stride, dtype=dtype, device=device)

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return func(*args, **given)


def _relu_in_place(input: Tensor, inplace: bool = False) -> bool:
    return inplace


def _hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> tuple[float, float, bool]:
    return min_val, max_val, inplace


def _rectified(
    args: tuple[Any, ...], given: Mapping[str, Any], bounds: tuple[float, float] | None, inplace: bool
) -> Tensor:
    x: Tensor = args[0]
    if not x.requires_grad or (inplace and (x.is_leaf or x._is_view())):
        return _activated(x, bounds, inplace)
    y: Tensor = _Rectify.apply(x, bounds, inplace)  # type: ignore[no-untyped-call]  # torch does not type it
    return y


def _activated(x: Tensor, bounds: tuple[float, float] | None, inplace: bool) -> Tensor:
    return F.relu(x, inplace) if bounds is None else F.hardtanh(x, *bounds, inplace)


class _Rectify(torch.autograd.Function):
    """ReLU, or hardtanh between two bounds, with their gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bounds: tuple[float, float] | None, inplace: bool) -> Tensor:
        """Activate, and keep which values passed."""
        y = _activated(x, bounds, inplace)
        passed = y.bool()  # many times as fast as a comparison
        if bounds is not None:
            low, high = (torch.tensor(bound, dtype=y.dtype, device=y.device) for bound in bounds)
            passed = (y - low).bool().logical_and_((y - high).bool())
        ctx.shape, ctx.stride = passed.shape, passed.stride()
        ctx.save_for_backward(packed(passed))
        if inplace:
            ctx.mark_dirty(x)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        """Return g where a value passed, else 0."""
        (bits,) = ctx.saved_tensors
        passed = unpacked(bits, ctx.shape, ctx.stride).to(g.dtype)
        return torch.ops.aten.threshold_backward(g, passed, 0), None, None  # masked_fill takes thirty times as long


def packed(flags: Tensor) -> Tensor:
    """Return flags without gaps in memory, eight to a byte: byte i holds those at i, n + i, 2 n + i, …, of 8 n."""
    values = flags.as_strided((flags.numel(),), (1,)).view(torch.uint8)
    if values.numel() % 8:
        values = F.pad(values, (0, -values.numel() % 8))
    planes = values.view(8, -1)
    bits = planes[0].clone()
    for place in range(1, 8):
        bits.add_(planes[place], alpha=1 << place)
    return bits


def unpacked(bits: Tensor, shape: torch.Size, stride: tuple[int, ...]) -> Tensor:
    """Return the flags, as 0 and 1.

    Args:
        bits: as `packed` returned them.
        shape: of the flags.
        stride: of the flags.
    """
    planes = torch.stack([bits >> place for place in range(8)]).bitwise_and_(1)
    return planes.view(-1).as_strided(shape, stride)
