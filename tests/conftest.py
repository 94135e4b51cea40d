"""Shared by all tests: one thread per process, fixed seeds, reproducible property tests."""

import os
import signal
import subprocess
import sys

# A virtual machine may list AMX among its instructions and forbid it: half precision then ends the process. oneDNN
# reads this when it first runs; it changes nothing on processors without AMX.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import hypothesis
import pytest
import torch

import campaign

# A shell that starts the tests in the background lets them ignore Ctrl-C, and so do the programs that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

torch.set_num_threads(1)
hypothesis.settings.register_profile(
    "default",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
# --hypothesis-profile=campaign: long runs by hand, where the number of cases matters and nothing may stop early
hypothesis.settings.register_profile("campaign", hypothesis.settings.get_profile("default"), max_examples=12_000)
hypothesis.settings.load_profile("default")


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 80 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if sys.platform != "linux" or os.getuid() != 0:
        pytest.skip("only root can mount a small disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=80k", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def pytest_terminal_summary(terminalreporter):
    if campaign.CASES:
        terminalreporter.section("bad batches")
        terminalreporter.write_line("\n".join(campaign.table()))
