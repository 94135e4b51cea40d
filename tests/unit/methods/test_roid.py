"""The pieces of ROID and CMF, against numbers found by hand, and what their adapters do at the edges."""

import math

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta import InputError, ModelError, SettingError
from nets import batches, conv_net, same, snapshot

SCALE = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


def trained(method, **settings):
    net = conv_net()
    adapter = delta_tta.adapt(net, method, **SCALE, **{"optimizer": "adam", "lr": 0.05, **settings})
    losses = []
    for x in batches(4):
        adapter(x)
        losses.append(adapter.signals.loss)
    return adapter.state_dict(), losses


def test_weight_ensembling_pulls_towards_the_source():
    start = {name: p for name, p in snapshot(conv_net()).items() if name in trained("roid")[0]["parameters"]}

    def distance(momentum):
        now = trained("roid", roid_momentum=momentum)[0]["parameters"]
        return sum(float((now[name] - start[name]).abs().sum()) for name in start)

    assert distance(1.0) > distance(0.9) > distance(0.5) > 0 == distance(0.0)


def test_the_views_come_from_the_seed_and_the_step():
    first, again, other = (trained("roid", seed=seed)[1] for seed in (3, 3, 4))
    assert first == again != other


def test_defaults_are_those_of_the_published_program():
    cifar = delta_tta.adapt(conv_net(), "roid", "cifar100-c", **SCALE).settings
    assert (cifar.optimizer, cifar.lr) == ("adam", 1e-3)
    for preset in ("imagenet-c", None):
        adapter = delta_tta.adapt(conv_net(), "cmf", preset, **SCALE)
        assert (adapter.settings.optimizer, adapter.settings.lr) == ("sgd", 2.5e-4)
        group = adapter._updater.optimizer.param_groups[0]
        assert (group["momentum"], group["nesterov"]) == (0.9, True)
    assert not delta_tta.adapt(conv_net(), "tent")._updater.optimizer.param_groups[0]["nesterov"]


@pytest.mark.parametrize(
    ("method", "setting", "teaches"),
    [
        ("roid", {"roid_momentum": 1.1}, "between 0 and 1"),
        ("roid", {"roid_temperature": 0}, "greater than 0 and finite"),
        ("cmf", {"cmf_q": -1}, "greater than 0 and finite"),
        ("cmf", {"roid_average": "much"}, "to be float"),
        ("cmf", {"roid_momentum": 0.9}, "belongs to 'roid'"),
        ("tent", {"cmf_alpha": 0.9}, "belongs to 'cmf'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(method, setting, teaches):
    with pytest.raises(SettingError, match=teaches):
        delta_tta.adapt(conv_net(), method, **setting)


def test_what_cannot_be_augmented_is_refused_at_once_even_in_the_background():
    net = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(16, 3))
    adapter = delta_tta.adapt(net, "roid", background=True, **SCALE)
    with pytest.raises(InputError, match="RGB images"):
        adapter(torch.rand(2, 1, 4, 4))


def test_a_transformer_trains_its_layer_norms_and_nothing_else():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    source = snapshot(net)
    adapter = delta_tta.adapt(net, "roid+sticky", lr=0.01, **SCALE)
    for x in batches(3):
        assert adapter(x).isfinite().all()
    assert adapter.state_dict()["parameters"].keys() == {"2.weight", "2.bias"}
    assert not same(snapshot(net), source)
    assert same(snapshot(adapter.unload()), source)
    with pytest.raises(ModelError, match="trains the weight and bias of norm layers"):
        delta_tta.adapt(nn.Sequential(nn.Flatten(), nn.Linear(192, 4)), "roid", **SCALE)


def test_a_batch_that_is_not_learnt_from_is_not_ensembled_either():
    adapter = delta_tta.adapt(conv_net(), "roid", guard="on", roid_momentum=0.5, **SCALE)
    xs = batches(3)
    adapter(xs[0])
    before = adapter.state_dict()["parameters"]
    adapter(torch.full_like(xs[1], math.nan))
    assert adapter.signals.refused == 1
    assert same(adapter.state_dict()["parameters"], before)
