"""Batch statistics: those of train mode, alone or mixed with the source's."""

import copy

import pytest
import torch
from torch import nn

import delta_tta
from all_methods import fitting
from nets import batches, conv_net, flat_net, randomise_statistics


def test_bn_with_prior_weighs_the_source_as_n_samples():
    net = flat_net().double().eval()
    layer = net[1]
    x = batches(1, size=4, shape=(6,), dtype=torch.float64)[0]
    features = net[0](x).detach()
    mean = (12 * layer.running_mean + 4 * features.mean(0)) / 16
    var = (12 * layer.running_var + 4 * features.var(0, correction=0)) / 16
    normed = (features - mean) / (var + layer.eps).sqrt() * layer.weight + layer.bias
    expected = net[3](normed.relu()).detach()
    assert torch.allclose(delta_tta.adapt(net, "bn", prior=12)(x), expected, atol=1e-12)


def test_bn_is_the_batch_alone():
    net = conv_net()
    expected = copy.deepcopy(net)
    for m in expected.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.train()
        elif isinstance(m, nn.Dropout):
            m.eval()
    x = batches(1)[0]
    assert torch.allclose(delta_tta.adapt(net, "bn", guard="off")(x), expected(x), atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_batches_are_normalised_by_themselves_as_in_train_mode(dtype):
    """Above a size, "bn" measures with another operator."""
    net = randomise_statistics(nn.Sequential(nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 32 * 32, 3))).to(dtype)
    x = (torch.randn(20, 4, 32, 32, dtype=dtype) * 3 + 1).requires_grad_(True)
    plain = copy.deepcopy(net[0]).train()
    layer = fitting(net, "tent").model[0]
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    mine, theirs = layer(x), plain(x)
    assert torch.allclose(mine, theirs, **close)
    g = torch.randn_like(x)
    own = torch.autograd.grad(mine, [x, net[0].source.weight, net[0].source.bias], g)
    for a, b in zip(own, torch.autograd.grad(theirs, [x, plain.weight, plain.bias], g), strict=True):
        assert torch.allclose(a, b, rtol=close["rtol"], atol=100 * close["atol"])
