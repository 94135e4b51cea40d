"""Which statistics normalise: the source's, the batch's, their moving average (TEMA), TBR, or anchored ones."""

from .anchored import Anchored
from .base import AdaptiveNorm, Phase, SourceStatistics
from .batch import BatchStatistics
from .moving import Tbr, Tema
from .swap import NormSites, register_norm

__all__ = [
    "AdaptiveNorm",
    "Anchored",
    "BatchStatistics",
    "NormSites",
    "Phase",
    "SourceStatistics",
    "Tbr",
    "Tema",
    "register_norm",
]
