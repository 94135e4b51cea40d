"""What a command says where, in which colour, and with which exit code it ends."""

import os
import pty
import subprocess
import sys

import pytest

from command import run

ESCAPE = "\x1b["


@pytest.mark.parametrize("wanted", [[], ["--verbose"]])
def test_the_unexpected_is_one_line_unless_details_are_wanted(wanted, small, tmp_path):
    network = tmp_path / "place" / "network.py"
    network.write_text("def make():\n    raise ArithmeticError('two\\nlines')\n")
    said = run(*small, "-m", "source", *wanted, code=1).stderr
    assert "delta-tta: unexpected ArithmeticError: two lines (network.py:2)" in said
    assert ("Traceback" in said) == bool(wanted)
    if not wanted:
        assert said.strip().endswith("run with --verbose to see the traceback.")
        assert len(said.strip().splitlines()) == 1


def test_errors_are_said_even_quietly_and_a_failed_cell_has_its_traceback(small, tmp_path):
    wrong = [*small, "-m", "source"]
    network = tmp_path / "place" / "network.py"
    network.write_text(network.read_text().replace("return self.head", "self.nothing\n        return self.head"))
    quiet = run("--quiet", *wrong, code=1).stderr
    assert quiet.startswith("failed: source on contrast 5")
    assert len(quiet.splitlines()) == 1
    loud = run("--verbose", *wrong, code=1).stderr
    assert "Traceback" in loud
    assert "self.nothing\n" in loud


def test_colour_where_it_is_wanted():
    assert ESCAPE not in run("methods").stdout
    assert ESCAPE in run("methods", FORCE_COLOR="1", TERM="xterm").stdout
    assert ESCAPE not in run("methods", FORCE_COLOR="1", NO_COLOR="1", TERM="xterm").stdout
    assert ESCAPE in run("compare", "tnet", FORCE_COLOR="1", TERM="xterm", code=2).stderr
    assert ESCAPE not in run("compare", "tnet", code=2).stderr


def test_a_terminal_has_colours_unless_it_wants_no_escape_codes():
    code = "import os; from delta_tta.cli.commands import app\n"
    for name in ("COLOURS", "NO_COLOR"):
        code += f"os.environ['{name}'] = '1'; print('{name}:', flush=True)\n"
        code += "for words in (['methods'], ['--help'], ['wrong']):\n    try: app(words)\n    except SystemExit: pass\n"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        said += part
    os.close(ours)
    assert process.wait() == 0
    coloured, plain = said.decode().split("NO_COLOR:")
    assert ESCAPE in coloured
    assert "No such command" in plain
    assert ESCAPE not in plain
