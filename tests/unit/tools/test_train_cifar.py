"""The tool that trains the shipped networks: how it starts from weights for ImageNet, and that it goes on."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from delta_tta import models
from delta_tta.models.lite import CifarLite
from delta_tta.models.weights import read_weights
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


def write_images(folder):
    drawn = np.random.default_rng(0)
    for part, count in (("train", 24), ("test", 10)):
        labels = np.arange(count) % 3
        images = drawn.integers(0, 80, (count, 32, 32, 3)) + 80 * labels[:, None, None, None]
        np.savez(folder / f"{part}.npz", images=images.astype(np.uint8), labels=labels)


def test_consistency_is_the_divergence_of_three_predictions_from_their_mean(tool):
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = logits.softmax(1).view(3, 2, 4)
    by_hand = sum((one * (one / p.mean(0)).log()).sum(1).mean() for one in p) / 3
    assert torch.allclose(tool.consistency(logits), by_hand)
    assert tool.consistency(logits[:2].repeat(3, 1)) == pytest.approx(0, abs=1e-12)


def test_training_with_consistency_starts_from_earlier_weights(tool, tmp_path, monkeypatch):
    write_images(tmp_path)

    def trained(name, options):
        file = tmp_path / f"{name}.safetensors"
        usual = f"--out {file} --architecture cct --batch 8 --epochs 1 --augmix 3 --threads 1"
        monkeypatch.setattr(sys, "argv", ["train_cifar.py", str(tmp_path), *usual.split(), *options.split()])
        tool.main()
        return read_weights(file)

    first, _ = trained("first", "--lr 0.01")
    second, card = trained("second", f"--lr 1e-12 --consistency 12 --start {tmp_path / 'first.safetensors'}")
    assert all(torch.allclose(value, first[name], atol=1e-6) for name, value in second.items())
    assert "--consistency 12.0" in card["trained_by"]
    assert card["trained_by"].endswith("--start first.safetensors")


def test_the_transformer_trains_in_mixed_precision_and_goes_on_where_it_stopped(tool, tmp_path, monkeypatch):
    write_images(tmp_path)

    def trained(name):
        options = "--architecture cct --optimizer adamw --lr 1e-3 --decay 0.05 --batch 8 --epochs 2 --smoothing 0.1 "
        options += "--average 0.5 --bfloat16 --half --threads 1"
        file = tmp_path / f"{name}.safetensors"
        monkeypatch.setattr(sys, "argv", ["train_cifar.py", str(tmp_path), "--out", str(file), *options.split()])
        tool.main()
        return file

    whole, saved = trained("whole"), []
    save = tool.save

    def save_and_stop(path, state):
        save(path, state)
        saved.append(state["epoch"])
        raise KeyboardInterrupt

    monkeypatch.setattr(tool, "save", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        trained("resumed")
    assert saved == [1]
    monkeypatch.setattr(tool, "save", save)
    resumed = trained("resumed")
    (weights, card), (expected, _) = read_weights(resumed), read_weights(whole)
    assert all(torch.equal(value, expected[name]) for name, value in weights.items())
    assert {value.dtype for value in weights.values()} == {torch.float16}
    assert card["architecture"] == "cct"
    assert "--optimizer adamw" in card["trained_by"]
    assert "--bfloat16" in card["trained_by"]
    assert card["data"].endswith("24 training images")
    assert models.load("cct", resumed).model.fc.out_features == 3
