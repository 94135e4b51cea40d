"""The paper's tables and figures, each by its name."""

from ..renamed import renamed
from .appendix import APPENDIX
from .assemble import ResultIndex, exhibit
from .benchmarks import BENCHMARKS, Benchmark, benchmark
from .figures import FIGURES
from .spec import ExhibitSpec
from .tables import TABLES

_ALL: tuple[ExhibitSpec, ...] = (*TABLES, *APPENDIX, *FIGURES)
EXHIBITS: dict[str, ExhibitSpec] = {spec.id: spec for spec in _ALL}
"""In the order of the paper."""

__getattr__ = renamed(__name__, {"Shelf": "delta_tta.paper:ResultIndex"})

__all__ = ["BENCHMARKS", "EXHIBITS", "Benchmark", "ExhibitSpec", "ResultIndex", "benchmark", "exhibit"]
