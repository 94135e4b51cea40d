"""A package of somebody else adds methods by being installed."""

import json
import os
import subprocess
import sys
import zipfile

import pytest

CODE = """
import dataclasses
from typing import ClassVar

import torch

from delta_tta.engine.step import Updater
from delta_tta.objectives import Objective
from delta_tta.norms.layers import BatchStatistics
from delta_tta.registry import component
from delta_tta.signals import Outcome


@component("gini", "objective", "minimise the Gini impurity", alone=True)
class Gini(Objective):
    @dataclasses.dataclass(frozen=True)
    class Options:
        gini_power: float = 2.0

        def __post_init__(self):
            if self.gini_power <= 1:
                raise ValueError("gini_power must be above 1")

    def __init__(self, settings):
        super().__init__(settings)
        self.power = settings.options(self.Options).gini_power

    def loss(self, prediction, state):
        return 1 - (prediction.log_p.exp() ** self.power).sum(1), None


@component("shy", "standalone", "answer and learn nothing", alone=True)
class Shy(Updater):
    layers = BatchStatistics
    learns = False
    cost = 2.0

    def observe(self, x, later=False):
        logits = self.predict(x)
        self.classes = logits.shape[1]
        return logits, lambda: Outcome(entropy=0.0)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The environment of a process that has the package."""
    folder = tmp_path_factory.mktemp("package")
    wheel = folder / "somebodys_methods-1.0-py3-none-any.whl"
    info = "somebodys_methods-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("somebodys_methods.py", CODE)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: somebodys-methods\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/entry_points.txt", "[delta_tta.methods]\ngini = somebodys_methods\n")
        archive.writestr(f"{info}/RECORD", "")
    site = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(pip, check=True, capture_output=True)
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}


def delta_tta(env, *arguments, code=0):
    command = [sys.executable, "-c", "from delta_tta.cli import main; main()", *map(str, arguments)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done


def test_its_methods_are_listed_run_stored_and_reported(installed, tmp_path):
    listed = json.loads(delta_tta(installed, "methods", "--json").stdout)
    assert listed["gini"]["line"] == "minimise the Gini impurity"
    assert "gini_power" in delta_tta(installed, "methods").stdout
    store = tmp_path / "runs.db"
    run = ["run", "-m", "gini+delta", "-m", "shy", "-m", "bn", "--samples", 64, "-b", 32, "--scenario", "IS+CB"]
    shown = delta_tta(installed, *run, "--set", "gini_power=3.0", "--store", store, "--workers", 0, "--json").stdout
    assert {one["method"] for one in json.loads(shown)} >= {"gini+delta", "shy", "bn"}
    delta_tta(installed, "report", store, "--out", tmp_path / "page.html")
    assert "gini" in (tmp_path / "page.html").read_text(encoding="utf-8").lower()


def test_its_settings_are_its_own(installed):
    call = (
        "import delta_tta, torch; net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), "
        "torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 5)); "
    )
    fine = call + "a = delta_tta.adapt(net, 'gini', gini_power=4.0); print(a.settings.extra)"
    done = subprocess.run([sys.executable, "-c", fine], env=installed, capture_output=True, text=True)
    assert done.stdout.strip() == "(('gini_power', 4.0),)", done.stderr
    for wrong, said in (
        ("'gini', gini_power=0.5", "gini_power must be above 1"),
        ("'tent', gini_power=4.0", "Setting `gini_power` is used by no part of 'tent'; it belongs to 'gini'"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", call + f"delta_tta.adapt(net, {wrong})"],
            env=installed,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert said in done.stderr
