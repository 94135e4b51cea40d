"""Memory layouts: the same answers in each, the faster one kept, and the weights given back as they were."""

import copy
import time

import pytest
import torch
from torch import nn

import delta_tta
from all_methods import FEW, make, saved_and_loaded
from delta_tta import SettingError
from delta_tta.engine.layout import ROUNDS, WARM, Layout
from delta_tta.signals import Outcome
from nets import batches, conv_net, flat_net, same, snapshot

TRIED = 2 * (WARM + ROUNDS)


def layouts(net):
    convolutions = [m.weight for m in net.modules() if isinstance(m, nn.Conv2d) and m.in_channels > 1]
    return {
        "channels_last" if w.is_contiguous(memory_format=torch.channels_last) else "contiguous" for w in convolutions
    }


@pytest.mark.parametrize("method", FEW)
@pytest.mark.parametrize("layout", ["channels_last", "contiguous"])
def test_same_answers_in_each_layout(method, layout):
    given = conv_net().to(memory_format=torch.channels_last if layout == "contiguous" else torch.contiguous_format)
    adapter = make(method, net=given, layout=layout, optimizer="sgd", lr=1e-3)
    exact = make(method, optimizer="sgd", lr=1e-3)
    for x in batches(3):
        assert torch.allclose(adapter(x), exact(x), rtol=1e-3, atol=1e-3)
    assert adapter.signals.layout == layout
    if method not in ("cotta", "memo"):  # all weights train there, and keep the optimizer's layout
        assert layouts(given) == {layout}


def test_the_faster_layout_is_kept():
    """The network sleeps where the features come in the slow layout."""

    class Slow(nn.Module):
        def __init__(self, slow):
            super().__init__()
            self.net, self.slow = conv_net(), slow

        def forward(self, x):
            if x.is_contiguous(memory_format=torch.channels_last) == (self.slow == "channels_last"):
                time.sleep(0.01)
            return self.net(x)

    for slow, fast in (("channels_last", "contiguous"), ("contiguous", "channels_last")):
        net = Slow(slow)
        adapter = make("tent+delta", net=net, layout="auto")
        seen = []
        for x in batches(TRIED + 3):
            adapter(x)
            seen.append(adapter.signals.layout)
        assert seen[: TRIED - 1].count(slow) in (TRIED // 2, TRIED // 2 - 1)  # the last of them has decided
        assert set(seen[TRIED - 1 :]) == {fast}
        assert layouts(net) == {fast}


def test_the_time_of_the_update_counts():
    layout = Layout(conv_net(), "auto", [])

    def answer(x, later):
        def update():
            time.sleep(0.01 if layout.now == "contiguous" else 0)
            return Outcome()

        return x, update

    for x in batches(TRIED):
        layout.timed(answer, x, False)[1]()
    assert layout.now == "channels_last"


def test_auto_in_the_background_and_with_a_reset():
    net = conv_net()
    adapter, exact = (
        make("tent+delta", net=net, layout="auto", background=True, optimizer="sgd"),
        make("tent+delta", optimizer="sgd"),
    )
    for i, x in enumerate(batches(TRIED + 2)):
        assert torch.allclose(adapter(x), exact(x), rtol=1e-3, atol=1e-3)
        if i == 5:
            adapter.reset()
            exact.reset()
    assert layouts(net) == {adapter.signals.layout}
    copied = copy.deepcopy(adapter)
    assert torch.equal(copied(x), adapter(x))


def test_unload_gives_the_weights_back_as_they_were():
    net = conv_net().to(memory_format=torch.channels_last)
    before, strides = snapshot(net), [p.stride() for p in net.parameters()]
    adapter = make("tent+delta", net=net, layout="contiguous")
    for x in batches(3):
        adapter(x)
    state = saved_and_loaded(adapter.state_dict())
    assert adapter.unload() is net
    assert same(snapshot(net), before)
    assert [p.stride() for p in net.parameters()] == strides
    make("tent+delta", net=net).load_state_dict(state)  # a state does not depend on it


def test_no_layout_by_default_and_none_for_flat_inputs():
    adapter = make("tent+delta")
    adapter(batches(1)[0])
    assert adapter.signals.layout is None
    flat = make("tent+delta", net=flat_net(), layout="channels_last", shape=(6,))
    assert flat(batches(1, shape=(6,))[0]).isfinite().all()


def test_what_it_refuses():
    with pytest.raises(SettingError, match=r"one of \('auto', 'channels_last', 'contiguous', None\), but got 'fast'"):
        delta_tta.adapt(conv_net(), layout="fast")
    with pytest.raises(SettingError, match="None with compile=True or sync=True, but got 'auto'"):
        delta_tta.adapt(conv_net(), layout="auto", compile=True)
