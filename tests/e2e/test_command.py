"""The command, as a user runs it."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from delta_tta.cli.commands import app


def run(*arguments, code=0):
    result = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"}).invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "tnet"], "Did you mean 'tent'"),
        (["compare", "tent", "--model", "resnet21-cifar10"], "Did you mean 'resnet20-cifar10'"),
        (["compare", "tent", "--clean", "nowhere"], "Expected CIFAR at nowhere"),
        (["compare", "tent", "--scenario", "DS+CB"], "DS+CB needs `rho` (ρ), greater than 0, such as rho=0.1."),
        (["compare", "tent", "--scenario", "IS+CB, seed 3"], "Expected a scenario without its seed"),
        (["compare", "tent", "--corruption", "fogg"], "Did you mean 'fog'"),
        (["corrupt", "out", "--only", "fogg"], "Did you mean 'fog'"),
        (["export", "resnet20-cifar10", "out.onnx", "--method", "tent"], "Expected a method with anchored or source"),
        (["demo", "--severity", "9"], "from 1 to 5, but got 9"),
        (["demo", "--picture", "demo.pdf"], "A picture is written as .png or .svg, and 'demo.pdf' is neither."),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_code_2(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments, code=2)
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_without_its_packages_the_command_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; from delta_tta.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "pip install 'delta-tta[cli]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_core_needs_torch_and_numpy_only():
    blocked = "cv2", "PIL", "safetensors", "typer", "rich", "matplotlib", "torchvision", "timm"
    code = (
        f"import sys; [sys.modules.__setitem__(name, None) for name in {blocked}]; "
        "import delta_tta, delta_tta.experiments, delta_tta.report"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent)
    assert (ended.returncode, ended.stderr) == (0, "")
