"""What corrects the answers of a model and leaves the model alone."""

from . import lame, mirror, sticky, tta

__all__ = ["lame", "mirror", "sticky", "tta"]
