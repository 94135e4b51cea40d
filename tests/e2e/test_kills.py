"""`run` and `reproduce` killed while their store is half full; `make faults` does so at many more moments."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parent / "kills.py"


def test_killed_at_random_moments_they_end_as_if_they_had_never_stopped(tmp_path):
    ended = subprocess.run([sys.executable, SCRIPT, tmp_path, "3", "1"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    seen = json.loads(ended.stdout)
    assert [(name, one["kills"]) for name, one in seen.items()] == [("run", 3), ("reproduce", 1)]
    assert all(0 < cells < one["cells"] for one in seen.values() for cells in one["at"])
