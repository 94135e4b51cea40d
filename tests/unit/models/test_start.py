"""The network that a training starts from."""

import pytest
import torch
from torch import nn

from delta_tta import models
from delta_tta.errors import DataError, ModelError
from delta_tta.models.start import start
from delta_tta.models.weights import fill
from folders import write_network


@pytest.fixture
def network(tmp_path):
    return write_network(tmp_path)


def two_layers(inner, outputs):
    return nn.Sequential(nn.Linear(2, inner), nn.Linear(inner, outputs))


def test_weights_of_another_number_of_classes_bring_all_but_the_last_layer(tmp_path):
    named, new = start("resnet20", "resnet20-cifar100", classes=10)
    assert new == ["fc.weight", "fc.bias"]
    theirs, ours = models.load("resnet20-cifar100").model.state_dict(), named.model.state_dict()
    assert [key for key in ours if not torch.equal(ours[key], theirs[key])] == new
    assert ours["fc.weight"].shape == (10, 64)
    assert named.normalisation.mean == models.load("resnet20-cifar100").normalisation.mean
    assert start("resnet20", "resnet20-cifar10", classes=10)[1] == []
    torch.save(models.load("resnet20-cifar10").model.state_dict(), tmp_path / "ten.pt")
    assert start("resnet20", str(tmp_path / "ten.pt"), classes=3)[1] == new
    with pytest.raises(ModelError, match=r"do not fit CifarResNet: .* missing"):
        start("resnet32", "resnet20-cifar10", classes=10)
    with pytest.raises(ModelError, match=r"4 of another shape, such as .*weight"):  # two layers: no new head
        fill(two_layers(3, 4), two_layers(5, 6).state_dict(), "x", new_head=True)
    with pytest.raises(DataError, match=r"Expected weights at nowhere\.pt"):
        start("resnet20", "nowhere.pt", classes=10)


def test_published_weights_are_those_that_load_takes_by_itself(network):
    named, new = start(network.replace("make", "ready"), "published", classes=3)
    assert new == ["6.weight", "6.bias"]
    assert torch.all(named.model[0].weight == 0.25)
    assert named.weights == "published"
    with pytest.raises(ModelError, match="'resnet20' is an architecture; give `weights`"):
        start("resnet20", "published", classes=3)


def test_the_first_weights_come_from_the_seed_alone():
    one, same, other = (start("resnet20", classes=4, seed=seed)[0].model.state_dict() for seed in (5, 5, 6))
    assert torch.equal(one["conv1.weight"], same["conv1.weight"])
    assert not torch.equal(one["conv1.weight"], other["conv1.weight"])
