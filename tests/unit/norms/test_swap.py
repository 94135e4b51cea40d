"""Finding, replacing and giving back norm layers."""

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta import ModelError
from delta_tta.norms import swap
from nets import batches, conv_net, same, snapshot


def test_unload_returns_the_original_objects():
    net = conv_net()
    originals = [id(m) for m in net.modules()]
    adapter = delta_tta.adapt(net, "tent+delta")
    assert [id(m) for m in net.modules()] != originals
    assert adapter.unload() is net
    assert [id(m) for m in net.modules()] == originals


def test_requires_grad_and_training_flags_come_back():
    net = conv_net()
    net[0].weight.requires_grad_(False)
    net[3].eval()
    flags = [(p.requires_grad) for p in net.parameters()], [m.training for m in net.modules()]
    adapter = delta_tta.adapt(net, "tent+delta")
    adapter(batches(1)[0])
    adapter.unload()
    assert ([p.requires_grad for p in net.parameters()], [m.training for m in net.modules()]) == flags


class WithUnknownForward(nn.BatchNorm2d):
    def forward(self, x):
        return super().forward(x).sin()


class WithoutForward(nn.BatchNorm2d):
    pass


def test_an_unknown_subclass_is_refused_and_the_model_left_alone():
    net = conv_net(WithUnknownForward)
    before = [id(m) for m in net.modules()], snapshot(net)
    with pytest.raises(ModelError, match="register_norm"):
        delta_tta.adapt(net, "tema")
    assert [id(m) for m in net.modules()] == before[0]
    assert same(snapshot(net), before[1])
    assert all(p.requires_grad for p in net.parameters())


def test_a_registered_subclass_keeps_its_tail(monkeypatch):
    monkeypatch.setattr(swap, "_TAILS", dict(swap._TAILS))
    delta_tta.register_norm(WithUnknownForward, lambda layer, y: y.sin())
    net = conv_net(WithUnknownForward).eval()
    x = batches(1)[0]
    with torch.no_grad():
        expected = net(x)
    assert torch.allclose(delta_tta.adapt(net, "tent+delta").predict(x), expected, atol=1e-5)


def test_a_subclass_without_its_own_forward_needs_no_registration():
    assert delta_tta.adapt(conv_net(WithoutForward), "bn")(batches(1)[0]).isfinite().all()


def test_hooks_of_the_user_go_on_working_and_can_be_removed():
    net, seen = conv_net(), []
    handle = net[1].register_forward_hook(lambda m, args, out: seen.append(tuple(out.shape)))
    adapter = delta_tta.adapt(net, "tent+delta")
    x = batches(1)[0]
    adapter(x)
    assert seen == [(12, 8, 8, 8)]
    handle.remove()
    adapter(x)
    assert len(seen) == 1
    net[1].register_forward_pre_hook(lambda m, args: seen.append("before"))
    adapter(x)
    assert seen[-1] == "before"


def test_hooks_of_every_kind_are_taken_along():
    net, seen = conv_net(), []
    net[1].register_forward_pre_hook(lambda m, args: seen.append("before"))
    net[1].register_forward_pre_hook(lambda m, args, kwargs: seen.append("before, kwargs"), with_kwargs=True)
    net[1].register_forward_hook(lambda m, args, kwargs, out: seen.append("after, kwargs"), with_kwargs=True)
    delta_tta.adapt(net, "tent+delta").predict(batches(1)[0])
    assert seen == ["before", "before, kwargs", "after, kwargs"]


def test_keeping_before_any_batch_keeps_the_source():
    net = conv_net().eval()
    x = batches(1)[0]
    with torch.no_grad():
        expected = net(x)
        plain = delta_tta.adapt(net, "tent+delta").unload(keep=True)
        assert torch.allclose(plain(x), expected, atol=1e-5)


def test_keeping_gives_statistics_to_layers_without():
    net = conv_net(lambda c: nn.BatchNorm2d(c, track_running_stats=False))
    adapter = delta_tta.adapt(net, "tent+delta")
    for x in batches(3):
        adapter(x)
    frozen = adapter.predict(x)
    plain = adapter.unload(keep=True)
    assert torch.allclose(plain(x), frozen, atol=1e-5)
    assert plain[1].track_running_stats


@pytest.mark.parametrize("eps", [i * 1e-4 for i in range(1, 12)])  # the square of a rounded root may be below eps
def test_keeping_after_a_constant_stream_leaves_no_negative_variance(eps):
    net = nn.Sequential(nn.BatchNorm2d(3, eps=eps), *conv_net())
    adapter = delta_tta.adapt(net, "tema", init="first", guard="off")
    adapter(torch.full((12, 3, 8, 8), 0.5))
    assert bool((adapter.unload(keep=True)[0].running_var >= 0).all())


def test_adapting_twice_is_refused():
    net = conv_net()
    adapter = delta_tta.adapt(net, "bn")
    with pytest.raises(ModelError, match="unload"):
        delta_tta.adapt(net, "tent")
    with pytest.raises(ModelError, match="unload"):
        delta_tta.adapt(adapter, "tent")
    adapter.unload()
    delta_tta.adapt(net, "tent")


def test_the_layers_show_themselves():
    text = repr(delta_tta.adapt(conv_net(), "tent+delta"))
    assert "method='tent+delta'" in text
    assert "Tbr(" in text


class WithPrelu(nn.BatchNorm2d):
    def __init__(self, channels):
        super().__init__(channels)
        self.act = nn.PReLU()

    def forward(self, x):
        return self.act(super().forward(x))


def test_parameters_of_a_layers_activation_are_not_trained(monkeypatch):
    monkeypatch.setattr(swap, "_TAILS", {**swap._TAILS, WithPrelu: lambda layer, y: layer.act(y)})
    adapter = delta_tta.adapt(conv_net(WithPrelu), "tent+delta")
    adapter(batches(1)[0])
    assert set(adapter.state_dict()["parameters"]) == {"1.weight", "1.bias", "4.weight", "4.bias"}
