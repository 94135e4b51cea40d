"""Models without batch norm: which of their parameters train, how, and what is said where a method cannot run."""

import copy

import pytest
import torch
from torch import nn

import delta_tta
from all_methods import fitting
from delta_tta import MethodError, ModelError
from delta_tta.norms import others
from nets import CLASSES, batches, conv_net, group_norm, same


class ChannelScale(nn.Module):
    """A norm layer as libraries write them: over the channels of (B, C, H, W)."""

    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.channels = channels

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6) * self.weight.view(-1, 1, 1)


class LlamaRMSNorm(ChannelScale):
    pass


class T5LayerNorm(ChannelScale):
    pass


class RmsNorm2d(ChannelScale):
    def __init__(self, channels):
        super().__init__(channels)
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x):
        return super().forward(x) + self.bias


class Last(nn.Module):
    """A norm over the last dimension, of (B, C, H, W) over the channels."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


KNOWN = {
    "group": group_norm,
    "layer": lambda c: Last(nn.LayerNorm(c)),
    "instance": lambda c: nn.InstanceNorm2d(c, affine=True),
    "instance with statistics": lambda c: nn.InstanceNorm2d(c, affine=True, track_running_stats=True),
    "rms": lambda c: Last(nn.RMSNorm(c)),
    "LlamaRMSNorm": LlamaRMSNorm,
    "T5LayerNorm": T5LayerNorm,
    "RmsNorm2d": RmsNorm2d,
}


def entropy_step(net, optimizer, x):
    """TENT (Wang et al. 2021) as its paper says."""
    logits = net(x)
    p = logits.softmax(1)
    loss = -(p * logits.log_softmax(1)).sum(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return logits.detach()


@pytest.mark.parametrize("kind", KNOWN)
def test_tent_trains_the_norms_as_its_paper_says_and_nothing_else(kind):
    net = conv_net(KNOWN[kind]).double().eval()
    twin = copy.deepcopy(net)
    own = [p for name, p in twin.named_parameters() if name.startswith(("1.", "4."))]
    optimizer = torch.optim.Adam(own, lr=0.01)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    adapter = delta_tta.adapt(net, "tent", "cifar10-c", lr=0.01)
    assert len(adapter.state_dict()["parameters"]) == len(own)
    for x in batches(10, dtype=torch.float64):
        assert torch.allclose(adapter(x), entropy_step(twin, optimizer, x), atol=1e-9)
    adapter.unload(keep=True)
    changed = {name for name, p in net.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {name for name in before if name.startswith(("1.", "4."))}


class Gated(nn.Module):
    """Not a norm layer, whatever it is called: it has a matrix."""

    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(channels))

    def forward(self, x):
        return torch.einsum("bchw,cd->bdhw", x, self.weight)


class LayerNormMlp(Gated):
    pass


class RmsNormWithStatistics(ChannelScale):
    def __init__(self, channels):
        super().__init__(channels)
        self.register_buffer("running_var", torch.ones(channels))


class LayerNormAround(ChannelScale):
    def __init__(self, channels):
        super().__init__(channels)
        self.inner = nn.Identity()


@pytest.mark.parametrize("kind", [ChannelScale, LayerNormMlp, RmsNormWithStatistics, LayerNormAround])
def test_a_class_that_may_be_no_norm_is_not_trained_until_it_is_registered(kind, monkeypatch):
    with pytest.raises(ModelError, match=r"Write 'source' instead, or.*register_norm"):
        delta_tta.adapt(conv_net(kind), "tent")
    monkeypatch.setattr(others, "KINDS", list(others.KINDS))
    delta_tta.register_norm(kind)
    delta_tta.register_norm(kind)
    assert others.KINDS.count(kind) == 1
    adapter = delta_tta.adapt(conv_net(kind), "tent", lr=0.1)
    assert list(adapter.state_dict()["parameters"]) == ["1.weight", "4.weight"]
    assert adapter(batches(1)[0]).isfinite().all()


def test_what_cannot_be_registered():
    with pytest.raises(ModelError, match=r"subclass of torch\.nn\.Module"):
        delta_tta.register_norm(nn.LayerNorm(3))
    with pytest.raises(ModelError, match="leave out `tail`"):
        delta_tta.register_norm(ChannelScale, lambda layer, y: y)


PROPOSED = {
    "bn": "source",
    "tema": "source",
    "anchored": "source",
    "bn+lame": "lame",
    "anchored+mirror+sticky": "source+mirror+sticky",
    "tent+tbr": "tent",
    "tent+tema": "tent",
    "tent+delta": "tent+dot",
    "tent+anchored": "tent",
    "pl+tbr+la+lame": "pl+la+lame",
    "ent-w+anchored+dot+mirror+sticky": "ent-w+dot+mirror+sticky",
    "eata+tbr+sample-drop": "eata+sample-drop",
}


@pytest.mark.parametrize("method", PROPOSED)
def test_what_is_proposed_instead_of_statistics_works(method):
    x, source = batches(1)[0], batches(1, seed=3)
    with pytest.raises(ModelError, match="renews the statistics of batch norm layers") as error:
        delta_tta.adapt(conv_net(group_norm), method)
    instead = str(error.value).split("'")[-2]
    assert instead == PROPOSED[method]
    adapter = delta_tta.adapt(conv_net(group_norm), instead, source=source if instead.startswith("eata") else None)
    assert adapter(x).isfinite().all()
    assert str(adapter.recipe) == instead


@pytest.mark.parametrize("method", ["tent+delta+lame", "tent+anchored+mirror+sticky", "eta"])
def test_what_is_proposed_where_nothing_could_train_works(method):
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES))
    with pytest.raises(ModelError, match="Write '") as error:
        delta_tta.adapt(net, method)
    instead = str(error.value).split("Write '")[1].split("'")[0]
    assert instead == {"tent+delta+lame": "lame", "eta": "source"}.get(method, "source+mirror+sticky")
    assert delta_tta.adapt(net, instead)(batches(1)[0]).isfinite().all()


@pytest.mark.parametrize("method", ["tent+mirror", "eta+dot+mirror+sticky"])
def test_mirror_goes_with_a_loss_where_no_statistics_are_the_batchs_own(method):
    adapter = fitting(conv_net(group_norm), method, lr=0.01)
    alone = fitting(conv_net(group_norm), method.split("+mirror")[0], lr=0.01)
    for x in batches(4):
        assert adapter(x).isfinite().all()
        alone(x)
    learnt, expected = (a.state_dict()["parameters"] for a in (adapter, alone))
    assert all(torch.equal(learnt[name], value) for name, value in expected.items())  # the loss does not see it
    with pytest.raises(MethodError, match="whose own statistics are others"):
        delta_tta.adapt(conv_net(), method)


class Mixed(nn.Module):
    """A group norm in front of batch norms."""

    def __init__(self, affine):
        super().__init__()
        self.group, self.net = nn.GroupNorm(1, 3), conv_net(lambda c: nn.BatchNorm2d(c, affine=affine))

    def forward(self, x):
        return self.net(self.group(x))


@pytest.mark.parametrize("method", ["tent", "tent+delta"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_beside_batch_norms_others_train_only_where_those_have_no_parameters(method, dtype):
    for affine, trained in ((True, ["net.1", "net.4"]), (False, ["group"])):
        adapter = delta_tta.adapt(Mixed(affine).to(dtype), method, lr=0.1)
        for x in batches(2):
            assert adapter(x.to(dtype)).isfinite().all()
        names = adapter.state_dict()["parameters"]
        assert list(names) == [f"{name}.{part}" for name in trained for part in ("weight", "bias")]


def test_the_model_may_be_a_norm_layer_itself():
    adapter = delta_tta.adapt(nn.LayerNorm(6), "tent", lr=0.1)
    adapter(batches(1, shape=(6,))[0])
    assert list(adapter.state_dict()["parameters"]) == ["weight", "bias"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", [kind for kind in KNOWN if kind != "RmsNorm2d"])
def test_half_precision_models_learn_with_all_their_digits(kind, dtype):
    def learnt(net):
        own, hooks = next(net.parameters()).dtype, [(len(m._forward_hooks), m) for m in net.modules()]
        adapter = delta_tta.adapt(net, "tent", "cifar10-c", lr=1e-4)  # such a step from 1 is none in half precision
        before = adapter.state_dict()["parameters"]
        for x in batches(10):
            assert adapter(x.to(own)).dtype == own
        after = adapter.state_dict()["parameters"]
        frozen = adapter.predict(batches(1)[0].to(own))
        plain = adapter.unload(keep=True)
        assert {p.dtype for p in plain.parameters()} == {own}
        assert torch.allclose(plain(batches(1)[0].to(own)).float(), frozen.float(), rtol=0.1, atol=0.3)
        assert all(len(m._forward_hooks) == count for count, m in hooks)
        return torch.cat([(after[k] - before[k]).flatten().float() for k in before])

    exact, half = learnt(conv_net(KNOWN[kind])), learnt(conv_net(KNOWN[kind]).to(dtype))
    assert float((half - exact).norm()) < 0.5 * float(exact.norm())


def test_moving_to_half_precision_and_back_costs_no_digits():
    adapter = delta_tta.adapt(conv_net(group_norm), "tent", lr=0.01)
    for x in batches(2):
        adapter(x)
    before = adapter.state_dict()["parameters"]
    adapter.bfloat16()
    assert same(adapter.state_dict()["parameters"], before)
    assert adapter(batches(1)[0].bfloat16()).dtype == torch.bfloat16
    adapter.float()
    assert adapter(batches(1)[0]).dtype == torch.float32
    net = adapter.unload()
    assert net[1].weight.dtype == torch.float32
    assert not net[1]._forward_hooks
    assert not net[1]._forward_pre_hooks


@pytest.mark.parametrize(("method", "says"), [("tent+dot", "entropy"), ("source+sticky", "without adaptation")])
def test_the_adapter_does_not_speak_of_statistics_that_are_not_there(method, says):
    words = delta_tta.adapt(conv_net(group_norm), method).extra_repr()
    assert says in words
    assert "normalise" not in words
    assert ("normalise" in delta_tta.adapt(conv_net(), method).extra_repr()) == (method == "tent+dot")


@pytest.mark.parametrize("compiled", [False, True])
def test_group_norm_in_channels_last(compiled):
    """Torch's operator ends the process where the features need no gradient, as behind a frozen convolution."""
    net = conv_net(group_norm).to(memory_format=torch.channels_last)
    adapter = fitting(torch.compile(net, backend="aot_eager") if compiled else net, "tent", optimizer="adam", lr=0.02)
    exact = fitting(conv_net(group_norm), "tent", optimizer="adam", lr=0.02)
    for x in batches(4):
        assert torch.allclose(adapter(x.to(memory_format=torch.channels_last)), exact(x), rtol=1e-3, atol=1e-3)
    assert not adapter.unload()[1]._forward_pre_hooks
