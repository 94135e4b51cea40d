"""Makes a worker process keep the memory that it frees."""

from __future__ import annotations

import ctypes

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # of <malloc.h>


def keep_freed_memory() -> None:
    """Let glibc take large tensors from the heap, and leave the heap as large as it once was.

    By default every tensor of more than 32 MB is mapped anew, and each of its pages costs a page fault. Without glibc
    nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library; Windows takes no None
        return
    mallopt(MMAP_MAX, 0)
    mallopt(TRIM_THRESHOLD, -1)
