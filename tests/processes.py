"""Code that may hang runs in a process of its own, which is then stopped."""

import os
import signal
import subprocess
import sys
from pathlib import Path


def run_for_itself(code, patience=60):
    """Run code that may import what the tests share; fail if it fails or does not end, and stop its children, too."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        _, errors = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    assert process.returncode == 0, errors
