"""Compiled models: the same answers and states as without a compiler, from a handful of graphs."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import delta_tta
from all_methods import FEW, make, saved_and_loaded
from delta_tta import ModelError, SettingError
from nets import batches, conv_net, flat_net, forget_statistics, same, snapshot, volume_net

FUSED = ["tent", "tent+delta", "tent+tema", "bn", "tema", "anchored", "anchored+mirror+sticky", "tent+anchored", "lame"]
FROM_TORCH = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""The modules of torch's default backend warn about each other when they are imported."""
SIZES = (12, 12, 7, 12, 12, 9)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


def compiled(net=None, backend="aot_eager"):
    return torch.compile(conv_net() if net is None else net, backend=backend)


def stream(count, shape=(3, 8, 8), start=0):
    return [batches(1, SIZES[i % len(SIZES)], shape, seed=start + i)[0] for i in range(count)]


def graphs():
    return counters["stats"]["unique_graphs"]


def assert_close(a, b):
    assert float((a - b).abs().max()) <= 1e-5 * max(1.0, float(b.abs().max()))


@pytest.mark.parametrize("method", [*FUSED, *(pytest.param(m, marks=pytest.mark.slow) for m in FEW if m not in FUSED)])
def test_same_answers_from_a_handful_of_graphs(method):
    """By plain steps: Adam divides by the gradient's size, so a gradient that is rounding alone would count."""
    adapter, plain = (make(method, net=net, optimizer="sgd") for net in (compiled(), conv_net()))
    for x in stream(40 if method in FUSED else 12):
        assert_close(adapter(x), plain(x))
        assert_close(adapter.predict(x), plain.predict(x))
    assert 0 < graphs() <= (4 if method in FUSED else 16)  # with gradient, without, and in the place of the source
    assert not counters["graph_break"]


@pytest.mark.parametrize("batch_norm", ["no affine", "no statistics", "flat", "volume", "bfloat16", "channels_last"])
@pytest.mark.parametrize("method", ["tent+delta", "tent", "anchored"])
def test_every_kind_of_batch_norm(batch_norm, method):
    nets = {
        "no affine": (lambda: conv_net(lambda c: nn.BatchNorm2d(c, affine=c == 16)), (3, 8, 8)),
        "no statistics": (lambda: forget_statistics(conv_net()), (3, 8, 8)),
        "flat": (flat_net, (6,)),
        "volume": (volume_net, (2, 5, 5, 5)),
        "bfloat16": (lambda: conv_net().to(torch.bfloat16), (3, 8, 8)),
        "channels_last": (lambda: conv_net().to(memory_format=torch.channels_last), (3, 8, 8)),
    }
    build, shape = nets[batch_norm]
    adapter, plain = make(method, net=compiled(build())), make(method, net=build())
    for x in stream(5, shape):
        if batch_norm == "bfloat16":
            x = x.to(torch.bfloat16)
        if batch_norm == "channels_last":
            x = x.to(memory_format=torch.channels_last)
        y, expected = adapter(x).float(), plain(x).float()
        if batch_norm == "bfloat16":  # 8 bits, rounded at other places
            assert float((y - expected).abs().mean()) < 0.15 * float(expected.abs().mean())
        else:
            assert_close(y, expected)
    assert graphs()


def test_autocast():
    adapter, plain = make("tent+delta", net=compiled()), make("tent+delta")
    for x in stream(4):
        with torch.autocast("cpu", torch.bfloat16):
            y = adapter(x)
        expected = plain(x)
        assert float((y.float() - expected).abs().mean()) < 0.15 * float(expected.abs().mean())
    assert all(t.dtype == torch.float32 for pair in adapter.state_dict()["statistics"].values() for t in pair.values())


@pytest.mark.parametrize("method", ["tent+delta", "anchored", "eta+delta", "rdumb+unmix-tns"])
def test_reset_state_and_unload(method):
    net = conv_net()
    before = snapshot(net)
    adapter, plain = make(method, net=compiled(net)), make(method)
    first, second = stream(6), stream(6, start=50)
    for x in first:
        adapter(x)
        plain(x)
    state = saved_and_loaded(adapter.state_dict())
    assert state["model"] == plain.state_dict()["model"]  # it travels between the two
    expected = [plain(x) for x in second]
    adapter.reset()
    adapter.load_state_dict(state)
    for x, y in zip(second, expected, strict=True):
        assert_close(adapter(x), y)
    plain.load_state_dict(state)
    for x, y in zip(second, expected, strict=True):
        assert_close(plain(x), y)
    assert adapter.unload() is net
    assert same(snapshot(net), before)
    assert type(net[1]) is nn.BatchNorm2d


def test_unload_keep_answers_alike():
    adapter = make("tent+delta", net=compiled())
    for x in stream(4):
        adapter(x)
    expected = adapter.predict(x)
    kept = adapter.unload(keep=True)
    assert_close(kept(x).detach(), expected)


def test_copies_live_on_their_own():
    """A copy's graphs must not write into the layers of the original."""
    adapter, plain = make("tent+delta", net=compiled(backend="eager")), make("tent+delta")
    first, second = stream(4), stream(4, start=70)
    for x in first:
        adapter(x)
        plain(x)
    copies = [copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter))]
    expected = [plain(x) for x in second]
    state = adapter.state_dict()
    for one in copies:
        for x, y in zip(second, expected, strict=True):
            assert_close(one(x), y)
    assert adapter.state_dict()["checksum"] == state["checksum"]
    for x, y in zip(second, expected, strict=True):
        assert_close(adapter(x), y)


def test_background_and_gradient_checkpoints():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = conv_net()

        def forward(self, x):
            x = torch.utils.checkpoint.checkpoint(self.net[:6], x, use_reentrant=False)
            return self.net[6:](x)

    adapter = make("tent+delta", {"background": True}, net=compiled(Checkpointed()))
    plain = make("tent+delta", net=Checkpointed())
    for x in stream(5):
        assert_close(adapter(x), plain(x))


@FROM_TORCH
def test_the_setting_and_what_it_refuses():
    assert delta_tta.adapt(conv_net(), compile=True).settings.compile
    with pytest.raises(SettingError, match="`compile` to be False with sync=True"):
        delta_tta.adapt(conv_net(), compile=True, sync=True)
    with pytest.raises(ModelError, match=r"without torch\.compile"):
        delta_tta.adapt(compiled(), sync=True)


@pytest.mark.slow
@FROM_TORCH
@pytest.mark.parametrize("method", ["tent+delta", "anchored+mirror+sticky"])
def test_inductor(method):
    adapter, plain = make(method, compile=True), make(method)
    for x in stream(9):
        assert_close(adapter(x), plain(x))
    assert graphs() <= 4
    assert not counters["graph_break"]
