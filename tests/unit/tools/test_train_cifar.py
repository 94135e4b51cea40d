"""The tool that trains the shipped networks: how it starts from weights for ImageNet."""

import importlib.util
from pathlib import Path

import pytest
import torch

from delta_tta.models.lite import CifarLite
from nets import randomise_statistics

TOOL = Path(__file__).parents[3] / "tools" / "train_cifar.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("train_cifar", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def weights_for_imagenet(path):
    """The same layers in the same order under other names, and a last stage and classifier that are not used."""
    given = randomise_statistics(CifarLite(classes=4)).state_dict()
    renamed = {f"_{i}": value for i, (name, value) in enumerate(given.items()) if not name.startswith("fc.")}
    torch.save({**renamed, "_head.weight": torch.zeros(1280, 320), "_fc.weight": torch.zeros(1000, 1280)}, path)
    return given


def test_all_layers_but_the_last_start_from_imagenet_and_the_large_filters_stay(tool, tmp_path):
    given = weights_for_imagenet(tmp_path / "lite0.pth")
    model = CifarLite(classes=4)
    before = model.fc.weight.detach().clone()
    tool.start_from_imagenet(model, tmp_path / "lite0.pth")
    assert all(torch.equal(v, given[k]) for k, v in model.state_dict().items() if not k.startswith("fc."))
    assert torch.equal(model.fc.weight, before)
    fixed = [tuple(p.shape[1:]) for p in model.parameters() if not p.requires_grad]
    assert fixed == [(1, 5, 5)] * 9


def test_weights_of_another_network_are_refused(tool, tmp_path):
    torch.save({"conv.weight": torch.zeros(8, 3, 7, 7)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match=r"Expected stem.0.weight \(32, 3, 3, 3\), but conv.weight .* \(8, 3, 7, 7\)"):
        tool.start_from_imagenet(CifarLite(), tmp_path / "other.pth")
