"""The command without what it needs."""

import subprocess
import sys

import pytest

from delta_tta.cli.serve import NEEDS


@pytest.mark.slow
@pytest.mark.parametrize("package", NEEDS)
def test_without_the_extra_it_says_what_to_install(package):
    code = f"import sys; sys.modules[{package!r}] = None; from delta_tta.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", "resnet20-cifar10"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "pip install 'delta-tta[serve]'" in done.stderr
    assert package.partition(".")[0] in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_package_and_the_other_commands_need_none_of_it():
    gone = "".join(f"sys.modules[{package!r}] = None; " for package in NEEDS)
    code = f"import sys; {gone}import delta_tta, delta_tta.serve.service; from delta_tta.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "methods"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "tent" in done.stdout
