"""Atomic writes, content hashes, JSON without NaN."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

UNFINISHED = re.compile(r"\..*\.(\d+)-[0-9a-f]+\.tmp")
"""Name of a file that is being written, with the number of the process."""


def write_whole(path: Path, fill: Callable[[IO[bytes]], object], wait_for_folder: bool = True) -> None:
    """Write beside the file, wait for the disk, and only then take the file's name; links stay, and lead to it.

    Args:
        path: the file.
        fill: writes the content.
        wait_for_folder: whether the name must survive a power cut. That is slow; False suits many files that can be
            made again.
    """
    if path.exists() and not path.is_file() and not path.is_dir():  # /dev/stdout, a pipe: nothing to replace
        with path.open("wb") as file:
            fill(file)
        return
    path = Path(os.path.realpath(path))
    if path.is_symlink():  # it leads to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    # Not the thread's number: processes of two machines may share a folder.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, RuntimeError) and isinstance(error.__context__, OSError):
            raise error.__context__ from None  # torch hides what the disk said
        raise
    if wait_for_folder and hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8; the file is there whole or not at all."""
    write_whole(path, lambda file: file.write(text.encode()))


def digest(content: bytes | str, digits: int = 64) -> str:
    """Return the first hex digits of the SHA-256 of bytes or text."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:digits]


def fingerprint(*parts: npt.NDArray[Any] | str | bytes) -> str:
    """Return 16 hex digits of the SHA-256 over arrays, texts and bytes, each led by its size."""
    whole = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            whole.update(f"{part.dtype} {part.shape}".encode())
            data = np.ascontiguousarray(part).tobytes()
        else:
            data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "little") + data)
    return whole.hexdigest()[:16]


def json_safe(value: Any) -> Any:
    """Return the value ready for JSON, with None for every number that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: json_safe(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
