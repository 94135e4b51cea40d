"""Norm layers without batch statistics: their weight and bias can train, and nothing else of them changes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from ..tensors import at_least_float32

KINDS: list[type[nn.Module]] = [nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.modules.instancenorm._InstanceNorm]
"""Known by their class; `register_norm` adds to them."""
WORDS = ("rmsnorm", "layernorm", "groupnorm", "instancenorm", "simplenorm")
"""Libraries have classes of their own with such names: RmsNorm and SimpleNorm2d of timm, LlamaRMSNorm, T5LayerNorm."""


def other_norms(model: nn.Module) -> dict[str, nn.Module]:
    """Return the norm layers of a model that are no batch norms, by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, tuple(KINDS)) or _looks_like_one(m)}


def in_float32(layer: nn.Module, dtype: torch.dtype) -> tuple[RemovableHandle, RemovableHandle]:
    """Let a layer of a model in half precision compute in float32, as its weight and bias do while they train."""

    def before(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (at_least_float32(inputs[0]), *inputs[1:])

    def after(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        return output.to(dtype)

    return layer.register_forward_pre_hook(before), layer.register_forward_hook(after)


def laid_out(layer: nn.GroupNorm) -> RemovableHandle:
    """Let a GroupNorm on a CPU get contiguous features where it has to learn and they need no gradient.

    Torch's operator for channels_last reads, in the backward pass, the gradient that it was not asked for: the process
    ends without an exception (torch 2.13).
    """

    def before(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        x = inputs[0]
        if x.requires_grad or not x.is_cpu or not torch.is_grad_enabled() or x.is_contiguous():
            return None
        return (x.contiguous(), *inputs[1:])

    return layer.register_forward_pre_hook(before)


def _looks_like_one(module: nn.Module) -> bool:
    """Whether the name of its class says so, and it holds nothing but a weight for each channel, and perhaps a bias."""
    names = (kind.__name__.lower().replace("_", "") for kind in type(module).__mro__)
    if isinstance(module, _BatchNorm) or not any(word in name for name in names for word in WORDS):
        return False
    own = list(module._parameters.values())
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in own):
        return False
    shapes = {p.shape for p in own if p is not None}
    return (
        not any(True for _ in module.children())
        and not any(name.startswith("running_") for name in module._buffers)
        and len(shapes) == 1
        and all(shape.numel() == max(shape, default=1) for shape in shapes)  # (C,) or (C, 1, 1)
        and all(p is None or p.is_floating_point() for p in own)
    )
