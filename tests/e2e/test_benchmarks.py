"""The benchmarks run; what they measure is not a test's business."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        (
            "step.py",
            ["--networks", "CIFAR ResNet-20", "--batch-sizes", "4", "--seconds", "0.1"],
            "step / plain formula",
        ),
        ("sync.py", ["--rounds", "1"], "| eta+delta |"),
        ("estimate.py", [], "| all |"),
    ],
)
def test_a_benchmark_prints_its_table(name, arguments, words):
    done = subprocess.run([sys.executable, FOLDER / name, *arguments], capture_output=True, text=True, timeout=240)
    assert done.returncode in (0, 1), done.stderr  # 1: a bar is missed, as it may be on a busy machine
    assert "Traceback" not in done.stderr, done.stderr
    assert words in done.stdout
