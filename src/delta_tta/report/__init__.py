"""Results to look at: plain values in `shown`, and each way to show them in one file."""

from .pictures import draw
from .text import markdown

__all__ = ["draw", "markdown"]
