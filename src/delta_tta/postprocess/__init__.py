"""Post-processing: components that change the answers, not the model."""

from . import lame, mirror, neo, prior, sticky, t3a, tta

__all__ = ["lame", "mirror", "neo", "prior", "sticky", "t3a", "tta"]
