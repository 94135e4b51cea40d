"""The stand-in layers: where averages start, when they change, and every kind of batch norm."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import delta_tta
from all_methods import fitting
from delta_tta.norms.layers import MovingAverage
from nets import CLASSES, SharedNorm, batches, conv_net, flat_net, randomise_statistics, same, snapshot, volume_net
from plain import PlainNorm


def layer_of(adapter, index=0):
    return [module for module in adapter.modules() if isinstance(module, MovingAverage)][index]


def test_before_any_batch_predict_is_the_source_model():
    net = conv_net().eval()
    x = batches(1)[0]
    with torch.no_grad():
        expected = copy.deepcopy(net)(x)
    for method in ("source", "tema", "anchored", "tent+delta", "tent+anchored"):
        adapter = delta_tta.adapt(copy.deepcopy(net), method)
        assert torch.allclose(adapter.predict(x), expected, atol=1e-5)


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


class WithBranches(nn.Module):
    """A batch norm that is never reached, and a group norm beside the batch norms."""

    def __init__(self):
        super().__init__()
        self.net, self.unused, self.group = conv_net(), nn.BatchNorm2d(4), nn.GroupNorm(1, 3)

    def forward(self, x):
        return self.net(self.group(x))


def test_a_layer_that_is_never_reached_and_norms_of_another_kind_stay_as_they_are():
    net = WithBranches()
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    adapter = delta_tta.adapt(net, "tent+delta", lr=0.1)
    for x in batches(3):
        adapter(x)
    assert set(adapter.state_dict()["statistics"]) == {"net.1", "net.4"}
    adapter.unload(keep=True)
    changed = {name for name, p in net.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {f"net.{i}.{part}" for i in (1, 4) for part in ("weight", "bias")}


def test_layer_norms_train_where_there_is_no_batch_norm():
    net = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, CLASSES))
    adapter = delta_tta.adapt(net, "tent+dot", lr=0.1)
    for x in batches(2, shape=(6,)):
        adapter(x)
    assert list(adapter.state_dict()["parameters"]) == ["1.weight", "1.bias"]
    assert not torch.equal(net[1].weight, torch.ones(8))


def test_layers_that_share_their_parameters():
    net = conv_net()
    net[4] = nn.BatchNorm2d(16)
    net.insert(5, nn.BatchNorm2d(16))
    net[5].weight, net[5].bias = net[4].weight, net[4].bias
    adapter = delta_tta.adapt(net, "tent+delta", lr=0.1)
    for x in batches(2):
        adapter(x)
    assert list(adapter.state_dict()["parameters"]) == ["1.weight", "1.bias", "4.weight", "4.bias"]
    assert len(adapter.state_dict()["statistics"]) == 3


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


def test_gradient_checkpoints_change_nothing():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = conv_net()

        def forward(self, x):
            return self.net[6:](checkpoint(self.net[3:6], self.net[:3](x), use_reentrant=False))

    for method in ("tent", "tent+tema", "tent+delta", "tent+anchored"):
        for init in ("first", "inherit"):
            exact, other = (fitting(net, method, lr=0.1, init=init) for net in (conv_net(), Checkpointed()))
            for x in batches(4):
                assert torch.equal(other(x), exact(x))


def test_features_are_not_kept_where_no_gradient_needs_them():
    adapter = delta_tta.adapt(conv_net(), "tema")
    adapter._updater.observe(batches(1)[0])
    for norm in adapter._updater.adapted.norms.values():
        assert all(seen._x is None for seen in norm._pending.seen)


def test_a_stand_in_shows_the_attributes_of_the_original():
    net = conv_net()
    mean = net[1].running_mean.clone()
    delta_tta.adapt(net, "tent+delta")
    assert torch.equal(net[1].running_mean, mean)
    assert net[1].weight is net[1].source.weight
    assert net[1].num_features == 8
    with pytest.raises(AttributeError, match="nonsense"):
        _ = net[1].nonsense


def norm_free_of(part):
    def make(channels):
        return nn.BatchNorm2d(channels, affine=part != "affine", track_running_stats=part != "statistics")

    return make


@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (flat_net(), (6,)),
        (conv_net(), (3, 8, 8)),
        (volume_net(), (2, 5, 5, 5)),
        (conv_net(nn.SyncBatchNorm), (3, 8, 8)),
        (conv_net(norm_free_of("statistics")), (3, 8, 8)),
    ],
    ids=["1d", "2d", "3d", "sync", "without statistics"],
)
@pytest.mark.parametrize("method", ["bn", "tema", "anchored", "tent+delta", "tent+anchored"])
@pytest.mark.parametrize("init", ["first", "inherit"])
def test_every_kind_of_batch_norm(net, shape, method, init):
    net = copy.deepcopy(net)
    before = snapshot(net)
    adapter = fitting(net, method, init=init)
    for x in batches(3, shape=shape):
        logits = adapter(x)
        assert logits.shape == (len(x), CLASSES)
        assert logits.isfinite().all()
    assert same(snapshot(adapter.unload()), before)


def test_affine_free_layers_renew_statistics_and_the_rest_trains():
    net = conv_net()
    net[1] = nn.BatchNorm2d(8, affine=False)
    randomise_statistics(net)
    adapter = delta_tta.adapt(net, "tent+delta")
    weight = net[4].source.weight.clone()
    for x in batches(2):
        adapter(x)
    assert layer_of(adapter).mean is not None
    assert not torch.equal(net[4].source.weight, weight)


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
