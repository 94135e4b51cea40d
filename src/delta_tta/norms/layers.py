"""The layers that components derive from, under one public name. They register in the order of `methods()`."""

from ..rules import TRUSTED_SAMPLES
from .base import AdaptiveNorm, Phase, SourceStatistics, Tail, batch_norm
from .batch import BatchStatistics
from .moving import MovingAverage, Pending, Tbr, Tema

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
