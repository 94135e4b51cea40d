"""Which statistics normalise: the source's, the batch's, moving averages of several kinds, or a mixture."""

from .anchored import Anchored
from .base import AdaptiveNorm, Phase, SourceStatistics
from .batch import BatchStatistics
from .instance import InstanceAware
from .moving import Tbr, Tema
from .robust import RobustStatistics
from .swap import NormSites, register_norm

__all__ = [
    "AdaptiveNorm",
    "Anchored",
    "BatchStatistics",
    "InstanceAware",
    "NormSites",
    "Phase",
    "RobustStatistics",
    "SourceStatistics",
    "Tbr",
    "Tema",
    "register_norm",
]
