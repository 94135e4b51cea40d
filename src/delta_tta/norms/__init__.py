"""Which statistics normalise: the source's, the batch's, their moving average (TEMA), or TBR."""

from .layers import AdaptiveNorm, BatchStatistics, Phase, SourceStatistics, Tbr, Tema
from .swap import NormSites, register_norm

__all__ = [
    "AdaptiveNorm",
    "BatchStatistics",
    "NormSites",
    "Phase",
    "SourceStatistics",
    "Tbr",
    "Tema",
    "register_norm",
]
