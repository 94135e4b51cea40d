"""The stand-in layers: where averages start, when they change, and every kind of batch norm."""

import copy

import pytest
import torch
from torch import nn

import delta_tta
from all_methods import fitting
from delta_tta.norms.layers import MovingAverage
from nets import CLASSES, batches, conv_net, flat_net, randomise_statistics, same, snapshot, volume_net


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
