"""The laboratory: run methods over streams and keep the results."""

from .evaluate import Result, evaluate
from .experiment import SCENARIOS, Cell, Experiment, Place, from_mapping, from_toml
from .store import Store
from .trace import Trace

__all__ = [
    "SCENARIOS",
    "Cell",
    "Experiment",
    "Place",
    "Result",
    "Store",
    "Trace",
    "evaluate",
    "from_mapping",
    "from_toml",
]
