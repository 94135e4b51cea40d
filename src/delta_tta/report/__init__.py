"""Results to look at: plain values in `shown`, and each way to show them in one file."""

from ..renamed import renamed
from .pictures import draw
from .text import markdown

__getattr__ = renamed(
    __name__,
    gone={"accuracy_over_stream": "use `delta_tta.report.runs.exhibits_of` and `delta_tta.report.draw`"},
)

__all__ = ["draw", "markdown"]
