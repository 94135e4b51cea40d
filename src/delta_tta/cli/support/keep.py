"""Where a comparison keeps its results, so that they outlive an output that breaks."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...experiments.store import Store

KEPT = 20
"""Comparisons that stay in the cache."""


@contextmanager
def kept_store(cache: Path) -> Iterator[Store]:
    """Give a new store in the cache, or among the temporary files if the cache may not be written."""
    folder = cache / "compared"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        folder = Path(tempfile.mkdtemp(prefix="delta-tta-"))
    path = folder / f"{time.strftime('%Y-%m-%d-%H%M%S')}-{os.getpid()}.db"
    empty = True
    try:
        with Store(path) as store:
            try:
                yield store
            finally:
                empty = not len(store)
    finally:
        for old in [path] if empty else sorted(folder.glob("*.db"))[:-KEPT]:
            _remove(old)


def _remove(path: Path) -> None:
    for end in ("", "-wal", "-shm"):  # the others are there if it was killed
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
