"""Moving averages: where they start, when they change, and by how much."""

import copy

import pytest
import torch

import delta_tta
from all_methods import fitting
from delta_tta.norms.layers import MovingAverage
from nets import SharedNorm, batches, conv_net, flat_net, snapshot
from plain import PlainNorm


def layer_of(adapter, index=0):
    return [module for module in adapter.modules() if isinstance(module, MovingAverage)][index]


def test_init_first_starts_at_the_first_batch():
    adapter = delta_tta.adapt(flat_net(), "tent+tbr")
    x = batches(1, size=4, shape=(6,))[0]
    features = adapter.model[0](x).detach()
    adapter(x)
    assert torch.allclose(layer_of(adapter).mean, features.mean(0), atol=1e-6)
    assert torch.allclose(layer_of(adapter).std, (features.var(0, correction=0) + 1e-5).sqrt(), atol=1e-6)


def test_init_inherit_starts_at_the_source():
    net = flat_net()
    mean, var = net[1].running_mean.clone(), net[1].running_var.clone()
    adapter = delta_tta.adapt(net, "tema", init="inherit", alpha=0.75)
    x = batches(1, size=4, shape=(6,))[0]
    features = net[0](x).detach()
    adapter(x)
    assert torch.allclose(layer_of(adapter).mean, 0.75 * mean + 0.25 * features.mean(0), atol=1e-6)
    expected = 0.75 * (var + 1e-5).sqrt() + 0.25 * (features.var(0, correction=0) + 1e-5).sqrt()
    assert torch.allclose(layer_of(adapter).std, expected, atol=1e-6)
    assert torch.equal(net[1].source.running_mean, mean)


def test_averages_move_although_nothing_is_selected():
    adapter = delta_tta.adapt(conv_net(sharp=0.01), "pl+delta", threshold=0.99, init="inherit")
    before, mean = snapshot(adapter.model), layer_of(adapter).mean.clone()
    adapter(batches(1)[0])
    assert adapter.signals.skipped == "no sample passed the threshold"
    assert adapter.signals.used == 0
    assert not torch.equal(layer_of(adapter).mean, mean)
    assert adapter.signals.frequencies is not None
    after = snapshot(adapter.model)
    assert all(torch.equal(after[k], before[k]) for k in before if k.endswith(("weight", "bias")))
    assert not adapter.state_dict()["optimizer"]


def test_a_layer_used_twice_normalises_with_the_averages_before_the_batch():
    """Both uses see the same averages, which then move by the one and by the other."""
    net, alpha = SharedNorm().double(), 0.8
    plain = copy.deepcopy(net)
    layer = plain.norm
    plain.norm, plain.again = (PlainNorm(layer, "tbr", alpha, "inherit") for _ in range(2))
    adapter = delta_tta.adapt(net, "tent+tbr", alpha=alpha, init="inherit", lr=1e-2)
    optimizer = torch.optim.SGD([layer.weight, layer.bias], 1e-2, momentum=0.9)
    for x in batches(5, shape=(6,), dtype=torch.float64):
        old = plain.norm.mean, plain.norm.std
        logits = plain(x)
        optimizer.zero_grad()
        p = logits.softmax(1)
        (-(p * p.log()).sum(1).mean()).backward(inputs=[layer.weight, layer.bias])
        optimizer.step()
        # each plain layer moved by its own batch: α old + (1−α) b
        mean, std = (
            alpha * first + second - alpha * before
            for first, second, before in zip(
                (plain.norm.mean, plain.norm.std), (plain.again.mean, plain.again.std), old, strict=True
            )
        )
        plain.norm.mean = plain.again.mean = mean
        plain.norm.std = plain.again.std = std
        assert torch.allclose(adapter(x), logits.detach(), atol=1e-10)
    assert torch.allclose(layer_of(adapter).mean, plain.norm.mean, atol=1e-10)
    assert torch.allclose(layer_of(adapter).std, plain.norm.std, atol=1e-10)
    assert len(adapter.state_dict()["statistics"]) == 1
    assert adapter.unload().norm is net.again


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("preset", ["imagenet-c", "cifar10-c"])
def test_half_precision_models_learn_with_all_their_digits(dtype, preset):
    def learnt(net):
        adapter = delta_tta.adapt(net, "tent+delta", preset)
        before = adapter.state_dict()["parameters"]
        for x in batches(10):
            adapter(x.to(next(net.parameters()).dtype))
        after = adapter.state_dict()["parameters"]
        moved = torch.cat([(after[k] - before[k]).float() for k in before])
        return moved, adapter

    exact, _ = learnt(conv_net())
    half, adapter = learnt(conv_net().to(dtype))
    assert float((half - exact).norm()) < 0.3 * float(exact.norm())
    x = batches(1)[0].to(dtype)
    frozen = adapter.predict(x)
    plain = adapter.unload(keep=True)
    assert {t.dtype for t in plain.state_dict().values() if t.is_floating_point()} == {dtype}
    assert torch.allclose(plain(x).float(), frozen.float(), rtol=0.1, atol=0.2)


def test_moving_to_half_precision_costs_the_averages_no_digits():
    adapter = delta_tta.adapt(conv_net(), "tent+delta")
    for x in batches(2):
        adapter(x)
    before = adapter.state_dict()
    adapter.half()
    after = adapter.state_dict()
    assert torch.equal(before["statistics"]["1"]["mean"], after["statistics"]["1"]["mean"])
    assert torch.equal(before["parameters"]["1.weight"], after["parameters"]["1.weight"])
    assert adapter.unload()[1].weight.dtype == torch.float16


def test_features_are_not_kept_where_no_gradient_needs_them():
    adapter = delta_tta.adapt(conv_net(), "tema")
    adapter._updater.observe(batches(1)[0])
    for norm in adapter._updater.adapted.norms.values():
        assert all(seen._x is None for seen in norm._pending.seen)


@pytest.mark.parametrize("method", ["tema", "tent+delta"])
def test_all_layers_move_by_the_formula(method):
    """They move in one call; a layer that runs twice in a forward pass moves by itself."""
    for net, shape in ((conv_net(), (3, 8, 8)), (SharedNorm(), (6,))):
        adapter = fitting(net, method, alpha=0.8, init="inherit", guard="off")
        x = batches(1, shape=shape)[0]
        layers = [module for module in adapter.modules() if isinstance(module, MovingAverage)]
        before = [[t.clone() for t in (layer.mean, layer.std)] for layer in layers]
        _, learn = adapter._updater.observe(x)
        learn_from = [list(layer._pending.seen) for layer in layers]
        learn()
        for layer, old, observed in zip(layers, before, learn_from, strict=True):
            for seen in observed:
                old = [0.8 * a + 0.2 * b for a, b in zip(old, seen.statistics, strict=True)]
            assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(old, (layer.mean, layer.std), strict=True))
            assert not layer._pending.seen
