"""Data sets of the field in their official layouts, your own image folders and videos, and the embedded default."""

from __future__ import annotations

from ..normalization import Normalisation, NormalisationWarning, normalisation_of
from ..renamed import renamed
from .cifar import cifar, cifar_c
from .derived import Concat, Corrupted, Subset, in_memory, on_disk
from .embedded import demo
from .folders import folder, imagenet_c, imagenet_r
from .sets import ArraySet, FileSet, ImageSet
from .video import video, ytbb_sub
from .ytbb import YOUTUBE_BB_CLASSES

__all__ = [
    "YOUTUBE_BB_CLASSES",
    "ArraySet",
    "Concat",
    "Corrupted",
    "FileSet",
    "ImageSet",
    "Normalisation",
    "NormalisationWarning",
    "Subset",
    "cifar",
    "cifar_c",
    "demo",
    "folder",
    "imagenet_c",
    "imagenet_r",
    "in_memory",
    "normalisation_of",
    "on_disk",
    "video",
    "ytbb_sub",
]

__getattr__ = renamed(__name__, {"Fewer": "delta_tta.data:Subset", "Joined": "delta_tta.data:Concat"})
