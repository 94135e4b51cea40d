"""The embedded default: 2,000 test images of CIFAR-10 that come with the package, so that everything can be tried."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from ..errors import DataError
from ..files import digest
from .sets import ArraySet, read_image

SHEET = "cifar10-test-2000.png"
CARD = "cifar10-test-2000.json"
COLUMNS = 50
"""Images in a row of the sheet."""


def demo() -> ArraySet:
    """Return the embedded images, class-balanced, uint8 (2000, 32, 32, 3); source and citation are in the card."""
    assets = resources.files("delta_tta").joinpath("assets")
    card = json.loads(assets.joinpath(CARD).read_text())
    with resources.as_file(assets.joinpath(SHEET)) as path:
        sheet = read_image(Path(path), size=None)
    tiles = sheet.reshape(-1, 32, COLUMNS, 32, 3).transpose(0, 2, 1, 3, 4)  # (rows, columns, height, width, channel)
    images = tiles.reshape(-1, 32, 32, 3)
    if digest(images.tobytes()) != card["sha256"]:
        raise DataError(f"The embedded images {SHEET} are damaged; install delta-tta again.")
    return ArraySet("2,000 test images of CIFAR-10", images, card["labels"], card["classes"])
