"""Post-processing: components that change the answers, not the model."""

from . import lame, mirror, sticky, t3a, tta

__all__ = ["lame", "mirror", "sticky", "t3a", "tta"]
