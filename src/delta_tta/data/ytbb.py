"""The classes of YouTube-BoundingBoxes (Real et al. 2017), of which the paper's YTBB-sub has 21.

Neither the paper nor the README of its authors' program says which 21 of the 23 they are, nor in which order.
"""

from __future__ import annotations

YOUTUBE_BB_CLASSES = (
    "person", "bird", "bicycle", "boat", "bus", "bear", "cow", "cat", "giraffe", "potted plant", "horse", "motorcycle",
    "knife", "airplane", "skateboard", "train", "truck", "zebra", "toilet", "dog", "elephant", "umbrella", "car",
)  # fmt: skip
"""In the order of its numbers, 0 to 21, and 23 for the car; 22 means that none is in view. COCO has all of them."""


def known(name: str) -> bool:
    """Whether this is the name of a class; letters in capitals and underscores for spaces do not matter."""
    return name.lower().replace("_", " ") in YOUTUBE_BB_CLASSES
