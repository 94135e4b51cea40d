"""Which statistics normalise: source, batch, moving averages (TEMA, TBR), anchored, UnMix-TNS, balanced batch norm."""

from .anchored import Anchored
from .balanced import BalancedBatchNorm
from .base import AdaptiveNorm, Phase, SourceStatistics
from .batch import BatchStatistics
from .moving import Tbr, Tema
from .swap import NormSites, register_norm
from .unmix import UnmixTns

__all__ = [
    "AdaptiveNorm",
    "Anchored",
    "BalancedBatchNorm",
    "BatchStatistics",
    "NormSites",
    "Phase",
    "SourceStatistics",
    "Tbr",
    "Tema",
    "UnmixTns",
    "register_norm",
]
