"""What a model is built of, and what a state holds, as digests that are the same on every device and machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..files import digest


def architecture(model: nn.Module) -> str:
    """Return a model's class and size, and a digest of its modules' names and kinds and of its tensors' shapes.

    Values, types and devices do not count; nor do buffers that the model does not save: they may change with its use.
    """
    lines = []
    modules = dict(model.named_modules())
    for path, module in modules.items():
        lines.append(f"{path} is {type(module).__name__}\n")
        passing = getattr(module, "_non_persistent_buffers_set", ())
        for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            if name not in passing:
                lines.append(f"{name} {tuple(tensor.shape)}\n")
    count = sum(p.numel() for p in model.parameters())
    return f"{type(model).__name__}, {len(modules)} modules, {count:,} parameters, {digest(''.join(lines), 16)}"


def checksum(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of nested mappings, sequences, tensors and plain values; the order of keys does not count."""
    whole = hashlib.sha256()
    _add(whole, content)
    return whole.hexdigest()


def _add(whole: Any, value: object) -> None:
    """Every value is led by its kind and size, so that no two contents read the same."""
    if isinstance(value, Tensor):
        plain = value.detach().cpu().contiguous()
        _lead(whole, f"tensor {plain.dtype} {tuple(plain.shape)}")
        whole.update(plain.flatten().view(torch.uint8).numpy())  # the memory itself: a state may be all weights
    elif isinstance(value, Mapping):
        _lead(whole, f"mapping {len(value)}")
        for key in sorted(value):
            _lead(whole, key)
            _add(whole, value[key])
    elif isinstance(value, (list, tuple)):
        _lead(whole, f"sequence {len(value)}")
        for item in value:
            _add(whole, item)
    elif value is None or isinstance(value, (bool, int, float, str)):
        _lead(whole, f"{type(value).__name__} {value!r}")
    else:
        raise TypeError(f"a state cannot hold a {type(value).__name__}")


def _lead(whole: Any, text: str) -> None:
    encoded = text.encode(errors="backslashreplace")
    whole.update(b"%d " % len(encoded) + encoded)
