"""Which statistics normalise: the source's, the batch's, moving averages of several kinds, or a mixture."""

from .anchored import Anchored
from .balanced import BalancedBatchNorm
from .base import AdaptiveNorm, Phase, SourceStatistics
from .batch import BatchStatistics
from .instance import InstanceAware
from .moving import Tbr, Tema
from .robust import RobustStatistics
from .swap import NormSites, register_norm
from .unmix import UnmixTns

__all__ = [
    "AdaptiveNorm",
    "Anchored",
    "BalancedBatchNorm",
    "BatchStatistics",
    "InstanceAware",
    "NormSites",
    "Phase",
    "RobustStatistics",
    "SourceStatistics",
    "Tbr",
    "Tema",
    "UnmixTns",
    "register_norm",
]
