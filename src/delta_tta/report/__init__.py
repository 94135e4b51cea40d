"""Results to look at: tables and pictures."""

from .figures import accuracy_over_stream
from .tables import markdown

__all__ = ["accuracy_over_stream", "markdown"]
