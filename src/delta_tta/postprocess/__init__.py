"""Post-processing: components that change the answers, not the model."""

from . import lame, mirror, neo, sticky, tta

__all__ = ["lame", "mirror", "neo", "sticky", "tta"]
