"""The laboratory: run methods over streams and keep the results."""

from .cell import Cell
from .evaluate import Result, evaluate
from .experiment import SCENARIOS, Experiment, from_mapping, from_toml
from .place import Place
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
