"""The state of an unfinished training, in a file beside the weights that it will write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..errors import DataError
from .weights import check_archive


def checkpoint_of(out: Path) -> Path:
    """Return the file that keeps the state of an unfinished training."""
    return out.with_name(out.name + ".resume")


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return a whole state; nothing in the file is ever run."""
    try:
        check_archive(path)
        saved: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        missing = {"identity", "epoch", "step", "total", "model", "optimizer"} - set(saved)
    except OSError:
        raise
    except Exception as error:  # a damaged file can raise anything
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{path} is not an intact state of a training ({first}); remove it to begin anew.") from None
    if missing:
        raise DataError(f"{path} is not the state of a training; write to another file.")
    return saved
