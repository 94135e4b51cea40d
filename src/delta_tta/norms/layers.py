"""All layers but the anchored ones, under one name; they register in the order in which `methods()` lists them."""

from .base import AdaptiveNorm, Phase, SourceStatistics, Tail, batch_norm
from .batch import BatchStatistics
from .moving import TRUSTED_SAMPLES, MovingAverage, Pending, Tbr, Tema

__all__ = [
    "TRUSTED_SAMPLES",
    "AdaptiveNorm",
    "BatchStatistics",
    "MovingAverage",
    "Pending",
    "Phase",
    "SourceStatistics",
    "Tail",
    "Tbr",
    "Tema",
    "batch_norm",
]
