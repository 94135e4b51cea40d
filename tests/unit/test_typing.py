"""What a type checker says of calls of `adapt`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import delta_tta

CALLS = """
import delta_tta
from torch import nn

net = nn.Linear(2, 2)
given: dict[str, object] = {}
a = delta_tta.adapt(net, "tent+delta", lr=0.1, alpha=0.9, dot="soft", update="slow", guard=delta_tta.Guard(reach=9.0))
delta_tta.adapt(net, "sar", sar_rho=0.1, neighbors=3, mean=(0.5, 0.5, 0.5), extra={"their_power": 2.0})
delta_tta.Settings(lr=0.1, compile=True)
delta_tta.adapt(net, lr="fast")  # arg-type
delta_tta.adapt(net, lrr=1)  # call-arg
delta_tta.adapt(net, "sar", sar_rho="x")  # arg-type
delta_tta.adapt(net, dot="firm")  # arg-type
delta_tta.adapt(net, update="sometimes")  # arg-type
delta_tta.Settings(views="many")  # arg-type
reveal: float = a.settings.alpha
wrong: str = a.settings.alpha  # assignment
a.settings.alhpa  # attr-defined
"""


@pytest.mark.slow
def test_a_wrong_type_or_name_of_a_setting_is_an_error(tmp_path):
    file = tmp_path / "calls.py"
    file.write_text(CALLS, encoding="utf-8")
    source = str(Path(delta_tta.__file__).parents[1])
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={tmp_path / 'cache'}", str(file)]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "MYPYPATH": source}, capture_output=True, text=True)
    found = re.findall(r"calls\.py:(\d+): error: .*\[([\w-]+)\]", done.stdout)
    lines = enumerate(CALLS.splitlines(), start=1)
    expected = [(str(number), line.rpartition("# ")[2]) for number, line in lines if "  # " in line]
    assert found == expected, done.stdout + done.stderr
    assert "delta_tta/" not in done.stdout, done.stdout
