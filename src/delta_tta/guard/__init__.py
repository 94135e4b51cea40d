"""What only protects: batches that must not be learnt from, collapses, and a warning for dependent streams."""

from ..guard_limits import Guard
from ..renamed import moved_modules

__all__ = ["Guard"]

limits = moved_modules(__name__, {"limits": "delta_tta.guard_limits"})["limits"]
