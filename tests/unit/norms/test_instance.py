"""Instance-aware batch norm: the soft shrinkage and its limits."""

import copy
import math

import pytest
import torch

import delta_tta
from delta_tta import SettingError
from delta_tta.norms.instance import instance_aware, soft_shrink
from nets import batches, conv_net, flat_net, forget_statistics


def test_soft_shrinkage():
    x = torch.tensor([-3.0, -1.0, 0.0, 0.5, 2.0])
    assert soft_shrink(x, torch.tensor(1.0)).tolist() == [-2, 0, 0, 0, 1]


def test_by_hand():
    # A layer with mean 0 and variance 1; a sample of 8 values around 10 with variance 8/7: ±1.
    x = torch.tensor([9.0, 11.0] * 4, dtype=torch.float64).view(1, 1, 8)
    k = 2.0
    mean = 10 - k * math.sqrt(1 / 8)
    var = 1.0  # 8/7 differs from 1 by less than k · √(2/7)
    y = instance_aware(x, torch.zeros(1).double(), torch.ones(1).double(), k, 0.0, None, None)
    assert torch.allclose(y, (x - mean) / math.sqrt(var), atol=1e-12)
    wide = instance_aware(10 * x, torch.zeros(1).double(), torch.ones(1).double(), k, 0.0, None, None)
    var = 100 * 8 / 7 - k * math.sqrt(2 / 7)
    assert torch.allclose(wide, (10 * x - 100 + k * math.sqrt(1 / 8)) / math.sqrt(var), atol=1e-12)


def test_a_variance_is_never_negative():
    x = torch.full((1, 1, 4, 4), 3.0)
    y = instance_aware(x + 1, torch.zeros(1), torch.full((1,), 0.5), 0.0, 1e-3, torch.ones(1), torch.zeros(1))
    assert y.abs().max() == 0  # k = 0: the sample's own mean, and its variance of 0


def test_a_large_k_leaves_the_source_and_0_is_instance_norm():
    x = batches(1)[0]
    net = conv_net().eval()
    expected = copy.deepcopy(net)(x)
    assert torch.allclose(delta_tta.adapt(copy.deepcopy(net), "iabn", iabn_k=1e6)(x), expected, atol=1e-5)
    usual = delta_tta.adapt(copy.deepcopy(net), "iabn")(x)
    assert not torch.allclose(usual, expected, atol=1e-2)
    features = net[0](x)
    var, mean = torch.var_mean(features, (2, 3), correction=1, keepdim=True)
    norm = net[1]
    own = (features - mean) / (var + norm.eps).sqrt() * norm.weight.view(-1, 1, 1) + norm.bias.view(-1, 1, 1)
    adapter = delta_tta.adapt(net, "iabn", iabn_k=0.0)
    assert torch.allclose(adapter.model[1].frozen(features), own, atol=1e-4)


def test_answers_do_not_depend_on_the_batch():
    x = batches(1)[0]
    adapter = delta_tta.adapt(conv_net(), "iabn")
    assert torch.allclose(adapter(x), torch.cat([adapter(one[None]) for one in x]), atol=1e-5)


def test_a_single_value_per_channel_has_no_statistics_of_its_own():
    x = batches(1, shape=(6,))[0]
    net = flat_net().eval()
    expected = copy.deepcopy(net)(x)
    assert torch.allclose(delta_tta.adapt(net, "iabn")(x), expected, atol=1e-5)


def test_without_the_source_s_statistics_it_corrects_the_batch_s():
    x = batches(1)[0]
    large = delta_tta.adapt(forget_statistics(conv_net()), "iabn", iabn_k=1e6)(x)
    batch = delta_tta.adapt(forget_statistics(conv_net()), "bn")(x)
    assert torch.allclose(large, batch, rtol=0.02, atol=0.05)  # biased and unbiased variance


@pytest.mark.parametrize("k", [-1.0, math.inf, math.nan])
def test_k_must_be_sensible(k):
    for method in ("iabn", "note"):
        with pytest.raises(SettingError, match="iabn_k"):
            delta_tta.adapt(conv_net(), method, iabn_k=k)


def test_a_plain_model_cannot_hold_it():
    for method in ("iabn", "note", "tent+iabn"):
        with pytest.raises(delta_tta.StateError, match="a plain model cannot hold it"):
            delta_tta.adapt(conv_net(), method).unload(keep=True)
