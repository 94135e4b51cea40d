"""Post-processing: components that change the answers, not the model."""

from . import lame, mirror, sticky, tta

__all__ = ["lame", "mirror", "sticky", "tta"]
