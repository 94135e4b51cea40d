"""The laboratory: run methods over streams and keep the results."""

from .compare import SCENARIOS, compare, samples
from .evaluate import Result, evaluate

__all__ = ["SCENARIOS", "Result", "compare", "evaluate", "samples"]
