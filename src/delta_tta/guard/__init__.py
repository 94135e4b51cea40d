"""What only protects: batches that must not be learnt from, collapses, and a warning for dependent streams."""

from .limits import Guard

__all__ = ["Guard"]
