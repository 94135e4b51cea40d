"""The presets that hold the paper's values by data set, and the defaults of methods with anchored statistics."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_CIFAR: Mapping[str, Any] = {
    "optimizer": "adam",
    "lr": 1e-3,
    "alpha": 0.95,
    "lam": 0.9,
    "reduction": "batch",
    "similarity": 0.4,
    "restore": 0.01,
    "symmetric": False,
}
_IMAGENET: Mapping[str, Any] = {
    "optimizer": "sgd",
    "lr": 2.5e-4,
    "alpha": 0.95,
    "lam": 0.95,
    "reduction": "selected",
}

RECOMMENDED_DEFAULTS: Mapping[str, Any] = MappingProxyType({"update": "auto", "guard": "on", "estimate": True})
"""The defaults of methods with anchored statistics; every other method behaves as its paper says."""

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "cifar10-c": _CIFAR,
        "cifar100-c": _CIFAR,
        "imagenet-c": _IMAGENET,
        "imagenet-r": _IMAGENET,
        "ytbb-sub": {**_IMAGENET, "alpha": 0.999, "lam": 0.9},
    }
)
"""The settings of the paper's appendix, by data set; CIFAR10-C, which it does not use, as CIFAR100-C."""


def on_cifar(**settings: Any) -> Mapping[str, Mapping[str, Any]]:
    """Return defaults that a component has with the presets of CIFAR."""
    return MappingProxyType(dict.fromkeys(("cifar10-c", "cifar100-c"), MappingProxyType(settings)))
