"""Freed memory stays with the process, so that large tensors cost no page faults."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import sys
import torch
from delta_tta.experiments.allocator import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
for _ in range(3):
    torch.ones(2**24)  # 64 MB
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    torch.ones(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_large_tensors_come_from_memory_that_was_freed():
    faults = {
        how: int(subprocess.check_output([sys.executable, "-c", FAULTS, how], text=True)) for how in ("kept", "usual")
    }
    assert faults["kept"] * 10 < faults["usual"]
