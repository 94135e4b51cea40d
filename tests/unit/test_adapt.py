"""The entry: what `adapt` takes, which method it recommends, and what it refuses before anything changes."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

import delta_tta
from delta_tta.adapt import RECOMMENDED, WITHOUT_BATCH_NORM, recommended
from delta_tta.errors import ModelError, SettingError
from nets import conv_net, forget_statistics, group_norm, same, snapshot


@pytest.mark.parametrize(
    ("make", "method"),
    [
        (conv_net, RECOMMENDED),
        (lambda: nn.Sequential(conv_net()), RECOMMENDED),
        (lambda: conv_net(group_norm), WITHOUT_BATCH_NORM),
        (lambda: forget_statistics(conv_net()), WITHOUT_BATCH_NORM),
    ],
    ids=["batch norm", "inside", "group norm", "without statistics"],
)
def test_the_method_is_chosen_by_the_model(make, method):
    assert recommended(make()) == method
    adapter = delta_tta.adapt(make())
    assert str(adapter.recipe) == method
    assert (adapter.settings.update, adapter.settings.guard, adapter.settings.estimate) == ("auto", "on", True)


def test_the_recommended_method_by_name_has_its_own_defaults_only():
    settings = delta_tta.adapt(conv_net(group_norm), WITHOUT_BATCH_NORM).settings
    assert (settings.update, settings.guard, settings.estimate) == ("every", "off", False)


@pytest.mark.parametrize("model", [None, "resnet", torch.zeros(3), conv_net])
def test_what_is_no_module_is_refused(model):
    with pytest.raises(ModelError, match=r"`model` to be a torch\.nn\.Module, but got \w+\.$"):
        delta_tta.adapt(model)


def test_an_adapter_is_not_adapted_again():
    with pytest.raises(ModelError, match=r"an adapter already; call unload\(\)"):
        delta_tta.adapt(delta_tta.adapt(conv_net()))


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [(["tnet"], {}), (["tent", "cifar"], {}), (["tent"], {"alpha": 0.9}), ([], {"process_group": object()})],
)
def test_a_refused_model_is_as_it_was(arguments, settings):
    net = conv_net()
    before, kinds = snapshot(net), [type(m) for m in net.modules()]
    with pytest.raises((delta_tta.MethodError, SettingError)):
        delta_tta.adapt(net, *arguments, **settings)
    assert same(snapshot(net), before)
    assert [type(m) for m in net.modules()] == kinds


@pytest.fixture
def group():
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_a_process_group_means_to_adapt_together(group):
    assert delta_tta.adapt(conv_net(), "tent", process_group=group).settings.sync
    assert not delta_tta.adapt(conv_net(), "tent").settings.sync
    with pytest.raises(SettingError, match="`sync` not to be False together with a `process_group`"):
        delta_tta.adapt(conv_net(), "tent", process_group=group, sync=False)
    with pytest.raises(SettingError, match="'cotta' cannot be synchronised; leave out `sync`"):
        delta_tta.adapt(conv_net(), "cotta", process_group=group, mean=(0, 0, 0), std=(1, 1, 1))
