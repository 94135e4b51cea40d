"""Post-processing: components that change the answers, not the model."""

from . import lame, mirror, prior, sticky, t3a, tta

__all__ = ["lame", "mirror", "prior", "sticky", "t3a", "tta"]
