"""Models by name; weights from files that can be trusted, and from files that cannot."""

import os
import subprocess
import sys
import types

import pytest
import torch
from torch import nn

from delta_tta import models
from delta_tta.data import NormalisationWarning, normalisation_of
from delta_tta.errors import DataError, InputError, ModelError
from delta_tta.models.cifar import CifarResNeXt
from vision import torchvision

FACTORY = """
from torch import nn
def make(classes=4):
    return nn.Sequential(nn.Flatten(), nn.Linear(12, classes))
def nothing():
    return 3
"""


@pytest.mark.parametrize(
    ("name", "classes", "least"),
    [
        *(("resnet20-cifar10", 10, 90), ("resnet20-cifar100", 100, 60)),
        *(("efficientnet-lite0-cifar100", 100, 70), ("cct-cifar10", 10, 85)),
    ],
)
def test_embedded_networks_bring_weights_and_normalisation(name, classes, least):
    named = models.load(name)
    assert {p.dtype for p in named.model.parameters()} == {torch.float32}
    assert named.model(torch.zeros(2, 3, 32, 32)).shape == (2, classes)
    assert not named.model.training
    assert named.normalisation.mean[0] == pytest.approx(0.5, abs=0.02)
    assert "card" in named.describe()["normalisation"]
    assert float(named.weights.split()[1]) > least
    with pytest.raises(ModelError, match=f"write '{name.rpartition('-')[0]}' to load others"):
        models.load(name, weights="x.pt")


def same(model, other):
    return all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))


def test_a_file_of_your_own_names_a_factory(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(FACTORY)
    half = (0.5, 0.5, 0.5)
    named = models.load(f"{file}:make", mean=half, std=half)
    assert named.model(torch.zeros(1, 3, 2, 2)).shape == (1, 4)
    assert models.load(f"{file}:make", classes=7, mean=half, std=half).model[1].out_features == 7
    torch.save(named.model.state_dict(), tmp_path / "mine.pt")
    assert same(models.load(f"{file}:make", tmp_path / "mine.pt", mean=half, std=half).model, named.model)
    with pytest.raises(InputError, match="does not say how its inputs are normalised"):
        models.load(f"{file}:make")
    with pytest.raises(ModelError, match="Did you mean 'make'"):
        models.load(f"{file}:makes", mean=half, std=half)
    with pytest.raises(ModelError, match=r"torch\.nn\.Module, but got int"):
        models.load(f"{file}:nothing", mean=half, std=half)
    with pytest.raises(ModelError, match="Expected a Python file"):
        models.load("none.py:make")


def test_torchvisions_models_come_with_the_normalisation_of_their_weights(tmp_path):
    named = models.load("torchvision:resnet18", "random", classes=21)  # as for YTBB-sub
    assert named.model.fc.out_features == 21
    assert named.normalisation.mean == (0.485, 0.456, 0.406)
    assert named.size == 224
    assert "torchvision" in named.normalisation.source
    torch.save(torchvision.models.resnet18(num_classes=21).state_dict(), tmp_path / "ytbb.pt")
    assert isinstance(models.load("torchvision:resnet18", tmp_path / "ytbb.pt", classes=21).model, nn.Module)
    with pytest.raises(ModelError, match="Did you mean 'resnet18'"):
        models.load("torchvision:resnet_18", "random")


def test_timms_models_come_with_their_own_normalisation():
    named = models.load("timm:tf_efficientnet_lite0", "random")
    assert named.normalisation.mean == (0.5, 0.5, 0.5)
    assert named.size == 224
    with pytest.raises(ModelError, match="timm has no model 'resnet_fifty'"):
        models.load("timm:resnet_fifty", "random")


def test_a_normalisation_that_contradicts_the_source_is_warned_about():
    with pytest.warns(NormalisationWarning, match="the model says"):
        named = models.load("torchvision:resnet18", "random", mean=(0, 0, 0), std=(1, 1, 1))
    assert named.normalisation.mean == (0, 0, 0)


def test_the_normalisation_travels_with_the_model():
    half = (0.5, 0.5, 0.5)
    assert normalisation_of(models.load("resnet20", "random").model).mean == (0.4914, 0.4822, 0.4465)
    with pytest.warns(NormalisationWarning):
        named = models.load("resnet20", "random", mean=half, std=half)
    assert normalisation_of(named.model).mean == half
    assert normalisation_of(models.Outputs(named.model, [0, 3])).mean == half


def test_torchvisions_weights_can_be_named():
    enum = torchvision.models.get_model_weights("resnet50")
    assert "IMAGENET1K_V1" in enum.__members__
    with pytest.raises(DataError, match="no such file"):
        models.load("torchvision:resnet18", "IMAGENET1K_V9")


def test_a_missing_package_and_an_unknown_name_say_what_to_do():
    with pytest.raises(ImportError, match="pip install robustbench"):
        models.load("robustbench:Hendrycks2020AugMix_ResNeXt")
    with pytest.raises(ModelError, match="Did you mean 'resnet20'"):
        models.load("resnet_20")


def test_robustbench_is_asked_for_its_corruption_models(monkeypatch):
    # Its models can only be downloaded; a stand-in takes down what it is asked for.
    asked = []

    def load_model(name, dataset, threat_model):
        asked.append((name, dataset, threat_model))
        return CifarResNeXt(100)

    utils = types.ModuleType("robustbench.utils")
    utils.load_model = load_model
    monkeypatch.setitem(sys.modules, "robustbench", types.ModuleType("robustbench"))
    monkeypatch.setitem(sys.modules, "robustbench.utils", utils)
    named = models.load("robustbench:cifar100/Hendrycks2020AugMix_ResNeXt")
    models.load("robustbench:Standard")
    bare = ("Standard", "cifar10", "corruptions")
    assert asked == [("Hendrycks2020AugMix_ResNeXt", "cifar100", "corruptions"), bare]
    assert named.normalisation.std == (1, 1, 1)  # it normalises inside


def test_a_library_built_for_another_torch_is_named_for_what_it_is(tmp_path):
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    run = subprocess.run(
        [sys.executable, "-c", "from delta_tta import models; models.load('timm:resnet18')"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert "ModelError: timm cannot be imported (operator torchvision::nms does not exist)" in run.stderr
    assert "install both from the same index" in run.stderr
