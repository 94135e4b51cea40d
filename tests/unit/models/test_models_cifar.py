"""The CIFAR networks have the published shapes and the names of public checkpoints."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from delta_tta.errors import InputError, ModelError
from delta_tta.models.cifar import CifarResNet, CifarResNeXt, WideResNet
from delta_tta.models.lite import CifarLite
from delta_tta.models.public import GroupResNet, PlainResNet
from delta_tta.models.transformer import CompactTransformer
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


def test_the_public_resnet_without_shortcut_weights_computes_what_its_weights_say():
    torch.manual_seed(1)
    model = randomise_statistics(PlainResNet(20, classes=7)).eval()
    w = model.state_dict()
    assert count(PlainResNet(20)) == 269722  # He et al. 2016: 0.27 million
    x = torch.randn(2, 3, 32, 32)
    y = F.relu(normed(F.conv2d(x, w["conv1.weight"], padding=1), w, "bn1"))
    for stage, i in ((s, i) for s in (1, 2, 3) for i in range(3)):
        name, stride = f"layer{stage}.{i}", 2 if stage > 1 and i == 0 else 1
        z = F.relu(normed(F.conv2d(y, w[f"{name}.conv1.weight"], stride=stride, padding=1), w, f"{name}.bn1"))
        z = normed(F.conv2d(z, w[f"{name}.conv2.weight"], padding=1), w, f"{name}.bn2")
        if stride == 2:
            half = torch.zeros(2, y.shape[1] // 2, *z.shape[2:])
            y = torch.cat([half, y[:, :, ::2, ::2], half], 1)
        y = F.relu(y + z)
    assert torch.allclose(model(x), y.mean((2, 3)) @ w["linear.weight"].T + w["linear.bias"], atol=1e-4)


def test_the_public_resnet_with_group_norm_computes_what_its_weights_say():
    torch.manual_seed(1)
    model = randomise_statistics(GroupResNet(26, classes=7)).eval()
    w = model.state_dict()

    def grouped(x, name):
        parts = x.view(len(x), 8, -1)
        parts = (parts - parts.mean(2, keepdim=True)) / (parts.var(2, unbiased=False, keepdim=True) + 1e-5).sqrt()
        return F.relu(parts.view_as(x) * w[f"{name}.weight"].view(-1, 1, 1) + w[f"{name}.bias"].view(-1, 1, 1))

    x = torch.randn(2, 3, 32, 32)
    y = F.conv2d(x, w["conv1.weight"], padding=1)
    for stage, i in ((s, i) for s in (1, 2, 3) for i in range(4)):
        name, stride = f"layer{stage}.{i}", 2 if stage > 1 and i == 0 else 1
        z = F.conv2d(grouped(y, f"{name}.bn1"), w[f"{name}.conv1.weight"], stride=stride, padding=1)
        z = F.conv2d(grouped(z, f"{name}.bn2"), w[f"{name}.conv2.weight"], padding=1)
        if stride == 2:
            pooled = F.avg_pool2d(y, 2)
            y = torch.cat([pooled, torch.zeros_like(pooled)], 1)
        y = y + z
    assert torch.allclose(model(x), grouped(y, "bn").mean((2, 3)) @ w["fc.weight"].T + w["fc.bias"], atol=1e-4)


def test_efficientnet_lite_computes_what_its_weights_say():
    torch.manual_seed(1)
    model = randomise_statistics(CifarLite(classes=7)).eval()
    w = model.state_dict()
    stages = ((1, 16, 3), (2, 24, 3), (2, 40, 5), (3, 80, 3), (3, 112, 5), (4, 192, 5))  # Tan & Le 2019, Table 1
    strides = {1: 2, 3: 2, 5: 2}  # by block: for 32×32 images only these halve the side

    def step(x, name, layer, **options):
        return normed(F.conv2d(x, w[f"{name}.{layer}.weight"], **options), w, f"{name}.{layer + 1}", eps=1e-3)

    x = torch.randn(2, 3, 32, 32)
    y, block = step(x, "stem", 0, padding=1).clamp(0, 6), 0
    for count_, channels, kernel in stages:
        for _ in range(count_):
            name, stride, z, layer = f"blocks.{block}.layers", strides.get(block, 1), y, 0
            if block:
                z, layer = step(z, name, 0).clamp(0, 6), 3
                assert z.shape[1] == 6 * y.shape[1]
            options = {"stride": stride, "padding": kernel // 2, "groups": z.shape[1]}
            z = step(step(z, name, layer, **options).clamp(0, 6), name, layer + 3)
            assert z.shape[1] == channels
            y, block = y + z if z.shape == y.shape else z, block + 1
    assert y.shape == (2, 192, 4, 4)
    torch.testing.assert_close(model(x), F.linear(y.mean((2, 3)), w["fc.weight"], w["fc.bias"]))


def test_the_compact_transformer_computes_what_its_weights_say():
    torch.manual_seed(1)
    model = CompactTransformer(classes=7, width=32, layers=2, heads=2).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    w, x = model.state_dict(), torch.randn(2, 3, 32, 32)

    def layer_norm(y, name):
        mean, var = y.mean(-1, keepdim=True), y.var(-1, keepdim=True, correction=0)
        return (y - mean) / (var + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(y, name):
        return y @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def stem(y, convolution, norm):
        y = F.conv2d(y, w[f"stem.{convolution}.weight"], padding=1).permute(0, 2, 3, 1)
        return layer_norm(y, f"stem.{norm}").relu().permute(0, 3, 1, 2)

    y = F.max_pool2d(stem(x, 0, 1), 2)
    y = F.max_pool2d(stem(stem(y, 4, 5), 7, 8), 2)
    y = F.conv2d(y, w["stem.11.weight"], padding=1).reshape(2, 32, 64).permute(0, 2, 1) + w["position"]
    for name in ("layers.0", "layers.1"):
        q, k, v = linear(layer_norm(y, f"{name}.norm1"), f"{name}.qkv").split(32, dim=2)
        heads = []
        for h in range(2):
            own = slice(16 * h, 16 * h + 16)
            scores = torch.einsum("bnd,bmd->bnm", q[..., own], k[..., own]) / 4
            heads.append(torch.einsum("bnm,bmd->bnd", scores.softmax(2), v[..., own]))
        y = y + linear(torch.cat(heads, 2), f"{name}.proj")
        y = y + linear(F.gelu(linear(layer_norm(y, f"{name}.norm2"), f"{name}.fc1")), f"{name}.fc2")
    y = layer_norm(y, "norm")
    y = (linear(y, "pool").softmax(1) * y).sum(1)
    assert torch.allclose(model(x), linear(y, "fc"), atol=1e-4)


def test_the_compact_transformer_has_no_batch_norm_and_takes_one_size():
    model = CompactTransformer()
    assert 0.6e6 < count(model) < 0.7e6
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())
    with pytest.raises(InputError, match=r"\(B, 3, 32, 32\), but got \(1, 3, 64, 64\)"):
        model(torch.zeros(1, 3, 64, 64))
