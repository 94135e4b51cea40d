"""Weights from files that can be trusted, and from files that cannot."""

import os
import pickle

import pytest
import torch
from safetensors.torch import save_file

from delta_tta import models
from delta_tta.errors import DataError, ModelError
from delta_tta.models.cifar import CifarResNet, CifarResNeXt
from nets import randomise_statistics


def same(model, other):
    return all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))


def test_weights_come_from_safetensors_with_their_card(tmp_path):
    net = randomise_statistics(CifarResNet(20, 4))
    save_file(net.state_dict(), tmp_path / "net.safetensors", {"mean": "[0.1, 0.2, 0.3]", "std": "[1, 1, 1]"})
    named = models.load("resnet20", tmp_path / "net.safetensors", classes=4)
    assert same(named.model, net)
    assert named.normalisation.mean == (0.1, 0.2, 0.3)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {
            "epoch": 3,
            "state_dict": {f"module.{k}": v for k, v in state.items()},
            "best_acc": 0.8,
        },  # AugMix
        lambda state: {**state, "mu": torch.zeros(1, 3, 1, 1), "sigma": torch.ones(1, 3, 1, 1)},  # RobustBench
        lambda state: {"state_dict": state, "best_acc1": torch.tensor(76.1)},  # PyTorch's ImageNet example
        lambda state: {"model": {f"_orig_mod.{k}": v for k, v in state.items()}},
        lambda state: {k: v for k, v in state.items() if "num_batches" not in k},  # before torch 0.4
        dict,
    ],
    ids=["augmix", "robustbench", "example", "compiled", "old", "plain"],
)
def test_public_checkpoints_of_resnext_load_whatever_they_are_wrapped_in(tmp_path, wrap):
    net = randomise_statistics(CifarResNeXt(100))
    torch.save(wrap(net.state_dict()), tmp_path / "net.pth.tar")
    named = models.load("resnext29", tmp_path / "net.pth.tar", classes=100)
    assert same(named.model, net)
    assert named.normalisation.std == (0.5, 0.5, 0.5)


class Hostile:
    def __reduce__(self):
        return os.system, ("touch it_ran",)


def test_hostile_and_damaged_weights_are_refused_and_nothing_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": Hostile()}, "hostile.pt")
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(Hostile()))
    torch.save(CifarResNet(20).state_dict(), "whole.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:5000])
    (tmp_path / "cut.safetensors").write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{")
    for name in ("hostile.pt", "raw.pt", "cut.pt", "cut.safetensors"):
        with pytest.raises(DataError, match="without running code"):
            models.load("resnet20", name)
    assert not (tmp_path / "it_ran").exists()
    with pytest.raises(DataError, match="no such file"):
        models.load("resnet20", "none.pt")
    torch.save({"epoch": 3}, "empty.pt")
    with pytest.raises(DataError, match="Expected a state dict"):
        models.load("resnet20", "empty.pt")


def test_weights_that_do_not_fit_say_where(tmp_path):
    torch.save(CifarResNet(20, classes=10).state_dict(), tmp_path / "ten.pt")
    with pytest.raises(ModelError, match=r"2 of another shape, such as fc.weight \(10, 64\) for \(100, 64\)"):
        models.load("resnet20", tmp_path / "ten.pt", classes=100)
    with pytest.raises(ModelError, match=r"missing, such as blocks\.1\d"):
        models.load("resnet32", tmp_path / "ten.pt")
    with pytest.raises(ModelError, match="give `weights`"):
        models.load("resnet20")
    assert models.load("resnet20", "random", classes=3).model(torch.zeros(1, 3, 32, 32)).shape == (1, 3)
