"""The CIFAR networks have the published shapes and the names of public checkpoints."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from delta_tta.errors import ModelError
from delta_tta.models.cifar import CifarResNet, CifarResNeXt, WideResNet
from nets import randomise_statistics


def count(model):
    return sum(p.numel() for p in model.parameters())


def test_the_sizes_are_the_published_ones():
    # He et al. 2016, Table 6: 0.27 and 0.85 million with shortcuts without weights; the 1×1 shortcuts add 2,752
    assert count(CifarResNet(20)) == 269722 + 2752
    assert count(CifarResNet(56)) == 853018 + 2752
    assert 6.8e6 < count(CifarResNeXt(10)) < 6.9e6  # AugMix: 6.8 million
    assert 2.2e6 < count(WideResNet(40, 2)) < 2.3e6  # Zagoruyko & Komodakis 2016: 2.2 million
    assert 36.4e6 < count(WideResNet(28, 10)) < 36.6e6  # 36.5 million
    assert sum(isinstance(m, nn.BatchNorm2d) for m in CifarResNet(20).modules()) == 21
    assert sum(isinstance(m, nn.BatchNorm2d) for m in CifarResNeXt().modules()) == 31


@pytest.mark.parametrize(
    ("depth", "make"),
    [(21, CifarResNet), (2, CifarResNet), (30, lambda d: CifarResNeXt(depth=d)), (20, WideResNet), (4, WideResNet)],
)
def test_an_impossible_depth_is_refused(depth, make):
    with pytest.raises(ModelError, match=rf"depth of \dn \+ [24] .* but got {depth}"):
        make(depth)


def test_resnext_has_the_names_of_the_public_checkpoints():
    names = set(CifarResNeXt().state_dict())
    block = ("conv_reduce", "bn_reduce", "conv_conv", "bn", "conv_expand", "bn_expand")
    wanted = {f"stage_{s}.{i}.{part}.weight" for s in (1, 2, 3) for i in range(3) for part in block}
    wanted |= {f"stage_{s}.0.downsample.{i}.weight" for s in (1, 2, 3) for i in (0, 1)}
    wanted |= {"conv_1_3x3.weight", "bn_1.weight", "classifier.weight", "classifier.bias"}
    assert wanted == {name for name in names if name.endswith((".weight", "classifier.bias"))}


def test_wide_resnet_has_the_names_of_the_public_checkpoints():
    names = {name.rpartition(".")[0] for name in WideResNet(16, 2).state_dict()}
    parts = ("bn1", "conv1", "bn2", "conv2")
    wanted = {f"block{s}.layer.{i}.{part}" for s in (1, 2, 3) for i in (0, 1) for part in parts}
    wanted |= {f"block{s}.layer.0.convShortcut" for s in (1, 2, 3)} | {"conv1", "bn1", "fc"}
    assert names == wanted


def test_wide_resnet_computes_what_its_weights_say():
    torch.manual_seed(1)
    model = randomise_statistics(WideResNet(10, 2, classes=7)).eval()
    w = model.state_dict()
    x = torch.randn(2, 3, 32, 32)
    y = F.conv2d(x, w["conv1.weight"], padding=1)
    for s, stride in ((1, 1), (2, 2), (3, 2)):
        name = f"block{s}.layer.0"
        a = F.relu(normed(y, w, f"{name}.bn1"))
        z = F.relu(normed(F.conv2d(a, w[f"{name}.conv1.weight"], stride=stride, padding=1), w, f"{name}.bn2"))
        y = F.conv2d(z, w[f"{name}.conv2.weight"], padding=1)
        y = y + F.conv2d(a, w[f"{name}.convShortcut.weight"], stride=stride)
    y = F.relu(normed(y, w, "bn1")).mean((2, 3))
    assert torch.allclose(model(x), y @ w["fc.weight"].T + w["fc.bias"], atol=1e-4)


def normed(x, weights, name, eps=1e-5):
    take = (weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
    return F.batch_norm(x, *take, training=False, eps=eps)


def test_resnet_computes_what_its_weights_say():
    torch.manual_seed(1)
    model = randomise_statistics(CifarResNet(20, classes=7)).eval()
    w = model.state_dict()
    x = torch.randn(2, 3, 32, 32)
    y = F.relu(normed(F.conv2d(x, w["conv1.weight"], padding=1), w, "bn1"))
    for i in range(9):
        stride = 2 if i in (3, 6) else 1
        z = F.relu(normed(F.conv2d(y, w[f"blocks.{i}.conv1.weight"], stride=stride, padding=1), w, f"blocks.{i}.bn1"))
        z = normed(F.conv2d(z, w[f"blocks.{i}.conv2.weight"], padding=1), w, f"blocks.{i}.bn2")
        if stride == 2:
            y = normed(F.conv2d(y, w[f"blocks.{i}.shortcut.0.weight"], stride=2), w, f"blocks.{i}.shortcut.1")
        y = F.relu(y + z)
    assert y.shape == (2, 64, 8, 8)
    torch.testing.assert_close(model(x), F.linear(y.mean((2, 3)), w["fc.weight"], w["fc.bias"]))


def test_resnext_computes_what_its_weights_say():
    torch.manual_seed(1)
    model = randomise_statistics(CifarResNeXt(classes=7)).eval()
    w = model.state_dict()
    x = torch.randn(1, 3, 32, 32)
    y = F.relu(normed(F.conv2d(x, w["conv_1_3x3.weight"], padding=1), w, "bn_1"))
    for stage in (1, 2, 3):
        for i in range(3):
            name, stride = f"stage_{stage}.{i}", 2 if stage > 1 and i == 0 else 1
            z = F.relu(normed(F.conv2d(y, w[f"{name}.conv_reduce.weight"]), w, f"{name}.bn_reduce"))
            z = F.conv2d(z, w[f"{name}.conv_conv.weight"], stride=stride, padding=1, groups=4)
            z = normed(
                F.conv2d(F.relu(normed(z, w, f"{name}.bn")), w[f"{name}.conv_expand.weight"]), w, f"{name}.bn_expand"
            )
            if i == 0:
                y = normed(F.conv2d(y, w[f"{name}.downsample.0.weight"], stride=stride), w, f"{name}.downsample.1")
            y = F.relu(y + z)
    assert y.shape == (1, 1024, 8, 8)
    torch.testing.assert_close(model(x), F.linear(y.mean((2, 3)), w["classifier.weight"], w["classifier.bias"]))
