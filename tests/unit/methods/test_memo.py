"""MEMO: one step per image, then forget."""

import copy

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta.augmentations import augmix
from delta_tta.losses import marginal_entropy
from delta_tta.methods import memo
from nets import batches, conv_net

SCALE = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "views": 4}


def values(model):
    return {name.replace("source.", ""): p.detach().clone() for name, p in model.named_parameters()}


def test_memo_steps_along_the_marginal_entropy_and_forgets():
    net = conv_net()
    source = values(net)
    x = batches(1, size=3)[0]
    adapter = delta_tta.adapt(net, "memo", lr=0.02, **SCALE)
    logits = adapter(x)
    assert all(torch.equal(p, source[name]) for name, p in values(net).items())
    # image by image, plainly: statistics 16/17 source and 1/17 batch, one step of SGD on all parameters
    for i in range(3):
        reference = copy.deepcopy(conv_net()).eval()
        pixels = augmix.augmix(x[i : i + 1] * 0.5 + 0.5, 4, torch.Generator().manual_seed(0))[:, 0]
        copies = (pixels - 0.5) / 0.5
        log_p = plain_forward(reference, copies).log_softmax(1)
        mean = log_p.exp().mean(0)
        loss = -(mean * mean.log()).sum()
        gradients = torch.autograd.grad(loss, list(reference.parameters()))
        with torch.no_grad():
            for p, g in zip(reference.parameters(), gradients, strict=True):
                p -= 0.02 * g
            assert torch.allclose(plain_forward(reference, x[i : i + 1])[0], logits[i], atol=1e-5)
            after = plain_forward(reference, copies).log_softmax(1)
            assert float(marginal_entropy(after)) < float(loss.detach())
        assert float(marginal_entropy(log_p).detach()) == pytest.approx(float(loss.detach()), rel=1e-5)


def plain_forward(net, x):
    for layer in net:
        if isinstance(layer, nn.BatchNorm2d):
            var, mean = torch.var_mean(x.detach(), (0, 2, 3))  # unbiased
            mean, var = (16 * layer.running_mean + mean) / 17, (16 * layer.running_var + var) / 17
            x = (x - mean.view(-1, 1, 1)) / (var + layer.eps).sqrt().view(-1, 1, 1)
            x = x * layer.weight.view(-1, 1, 1) + layer.bias.view(-1, 1, 1)
        else:
            x = layer(x.clone())
    return x


@pytest.mark.parametrize("at_once", [memo.AT_ONCE, 1, 2 * 4 * 3 * 8 * 8])
def test_memo_answers_an_image_the_same_whatever_its_batch(at_once, monkeypatch):
    monkeypatch.setattr(memo, "AT_ONCE", at_once)
    x = batches(1, size=6)[0]
    adapter = delta_tta.adapt(conv_net(), "memo", lr=0.02, **SCALE)
    whole = adapter(x)
    assert torch.allclose(torch.cat([adapter(one) for one in x.split(1)]), whole, atol=1e-6)
