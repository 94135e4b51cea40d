"""delta-tta keeps a trained image classifier accurate while it predicts.

model = delta_tta.adapt(model, "tent+delta")
for images in stream:
    logits = model(images)
"""

from __future__ import annotations

from typing import Any

__version__ = "0.2.0"

try:
    import torch as _torch  # noqa: F401  (only to see whether it is there)
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ModuleNotFoundError(
            f"delta_tta.{name} needs PyTorch: pip install torch. Without it there is delta_tta.edge.", name="torch"
        )
else:
    from . import corruptions, data, functional, metrics, models, streams
    from .adapt import adapt
    from .adapter import Adapter
    from .catalog import methods
    from .checkpoints import Checkpointer, load_state, save_state
    from .errors import (
        DataError,
        DeltaError,
        InputError,
        MethodError,
        ModelError,
        SettingError,
        StateError,
        StreamError,
        SyncError,
    )
    from .guard_limits import Guard
    from .norms import register_norm
    from .settings import PRESETS, Settings
    from .signals import Signals

__all__ = [
    "PRESETS",
    "Adapter",
    "Checkpointer",
    "DataError",
    "DeltaError",
    "Guard",
    "InputError",
    "MethodError",
    "ModelError",
    "SettingError",
    "Settings",
    "Signals",
    "StateError",
    "StreamError",
    "SyncError",
    "adapt",
    "corruptions",
    "data",
    "functional",
    "load_state",
    "methods",
    "metrics",
    "models",
    "register_norm",
    "save_state",
    "streams",
]
