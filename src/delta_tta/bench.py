"""What `delta_tta.experiments` was called before 0.2."""

from __future__ import annotations

import warnings
from typing import Any

from . import experiments
from .renamed import moved_modules, renamed

_MODULES = moved_modules(
    __name__,
    {
        **{
            name: f"delta_tta.experiments.{name}"
            for name in ("differences", "evaluate", "experiment", "lab", "rows", "runner", "store", "trace", "tuning")
        },
        "cluster": "delta_tta.experiments.ray_engine",
        "engine": "delta_tta.experiments.local_engine",
        "paper": "delta_tta.paper.numbers",
    },
)
_renamed = renamed(__name__, {name: f"delta_tta.experiments:{name}" for name in experiments.__all__}, stacklevel=3)

warnings.warn("delta_tta.bench is now delta_tta.experiments.", DeprecationWarning, stacklevel=2)


def __getattr__(name: str) -> Any:
    """Return what has moved; `bench.evaluate` is the function, as it was, and no module."""
    if name in _MODULES and name not in experiments.__all__:
        return _MODULES[name]
    return _renamed(name)
