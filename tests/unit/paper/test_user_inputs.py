"""What the user gives for a benchmark, and where it comes from if it is missing."""

from pathlib import Path

import pytest
import torch

from delta_tta.data.sources import how_to_get
from delta_tta.errors import SettingError
from delta_tta.models.cifar import CifarResNet
from delta_tta.paper import BENCHMARKS
from delta_tta.paper.user_inputs import KINDS, WEIGHTS, UserInputs, cifar_model, data_of, weights_of


def test_every_benchmark_but_the_embedded_one_needs_data():
    assert set(KINDS) == set(BENCHMARKS) - {"demo"}


@pytest.mark.parametrize("name", KINDS)
def test_missing_data_says_how_to_get_it(name):
    assert data_of(name, Path("images")) == "images"
    with pytest.raises(SettingError) as error:
        data_of(name, None)
    assert f"'{name}'" in str(error.value)
    assert "--data PATH" in str(error.value)
    assert str(error.value).endswith(how_to_get(KINDS[name]))


@pytest.mark.parametrize("name", WEIGHTS)
def test_missing_weights_say_where_some_are(name):
    assert weights_of(name, Path("net.pt")) == Path("net.pt")
    with pytest.raises(SettingError, match=rf"for '{name}' \(--weights FILE\): none come with it") as error:
        weights_of(name, None)
    assert str(error.value).endswith(WEIGHTS[name])


def test_the_embedded_network_is_taken_unless_weights_are_given(tmp_path):
    assert cifar_model(UserInputs(), "resnet20-cifar100", "ResNet-20") == ("resnet20-cifar100", None, "ResNet-20")
    file = tmp_path / "mine.pt"
    torch.save(CifarResNet(32, 100).state_dict(), file)
    model, weights, called = cifar_model(UserInputs(weights=file), "resnet20-cifar100", "ResNet-20")
    assert (model, weights, called) == ("resnet32", str(file), "resnet32 (mine.pt)")
