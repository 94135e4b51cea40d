"""The contract that every method keeps, under every schedule: precision, compilers, copies, modes."""

import copy

import pytest
import torch

import delta_tta
from all_methods import bakes, make, stream
from delta_tta import ModelError
from delta_tta.recipe import parse
from nets import conv_net, same, snapshot


def test_autocast(method, schedule, device):
    adapter, exact = make(method, schedule, device=device), make(method, schedule, device=device)
    for x in stream(3, device=device):
        expected = exact(x)
        with torch.autocast(device, torch.bfloat16):
            logits = adapter(x)
        assert logits.dtype == torch.bfloat16
        assert logits.isfinite().all()
        # bfloat16 keeps 8 bits, and the nets drift apart: the same answer, not the same digits
        assert float((logits.float() - expected).abs().mean()) < 0.15 * float(expected.abs().mean())
    state = adapter.state_dict()
    assert all(t.dtype == torch.float32 for pair in state["statistics"].values() for t in pair.values())
    assert all(t.dtype == torch.float32 for t in state["reweighting"].values())


def test_half_precision_models(method, device):
    if parse(method).trains == "all":
        with pytest.raises(ModelError, match="Give the model in float32"):
            make(method, net=conv_net().to(torch.bfloat16), device=device)
        return
    adapter = make(method, net=conv_net().to(torch.bfloat16), device=device)
    for x in stream(3, device=device):
        assert adapter(x.to(torch.bfloat16)).isfinite().all()


def test_channels_last(method, schedule, device):
    adapter = make(method, schedule, conv_net().to(memory_format=torch.channels_last), device)
    exact = make(method, schedule, device=device)
    for x in stream(3, device=device):
        logits = adapter(x.to(memory_format=torch.channels_last))
        assert torch.allclose(logits, exact(x), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.few  # seconds each: every component once, not every pair
@pytest.mark.parametrize("outside", [False, True])
def test_torch_compile(method, device, outside):
    torch.compiler.reset()
    exact = make(method, device=device)
    if outside:
        adapter = torch.compile(make(method, device=device), backend="eager")
    else:
        adapter = make(method, net=torch.compile(conv_net(), backend="eager"), device=device)
    for x in stream(3, device=device):
        assert torch.allclose(adapter(x), exact(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_moving_to_another_type_in_mid_stream(method, schedule, device, dtype):
    adapter = make(method, schedule, device=device)
    for x in stream(3, device=device):
        adapter(x)
    adapter.to(dtype)
    for x in stream(3, device=device):
        logits = adapter(x.to(dtype))
        assert logits.dtype == dtype
        assert logits.isfinite().all()
    adapter.reset()
    assert adapter(x.to(dtype)).isfinite().all()


def test_a_deep_copy_lives_on_its_own(method, schedule, device):
    adapter = make(method, schedule, device=device)
    first, second = stream(3, device=device), stream(3, seed=1, device=device)
    for x in first:
        adapter(x)
    reference = copy.deepcopy(adapter)  # in the background the last update may still be running
    copied = [reference(x) for x in second]
    assert all(torch.equal(a, adapter(x)) for a, x in zip(copied, second, strict=True))


def test_everything_works_under_inference_mode(method, schedule, device):
    first, second = stream(3, device=device), stream(3, seed=1, device=device)
    exact = make(method, schedule, device=device, init="inherit")
    expected = [exact(x) for x in (*first, *second)]
    net = conv_net().to(device)
    with torch.inference_mode():
        adapter = make(method, schedule, net, init="inherit")
        adapter(second[0])
        adapter.reset()
        for x, y in zip(first, expected, strict=False):
            assert torch.equal(adapter(x), y)
        state = adapter.state_dict()
        adapter.reset()
        adapter.load_state_dict(state)
        adapter.to(device)
    for x, y in zip(second, expected[3:], strict=True):
        assert torch.equal(adapter(x), y)
    with torch.inference_mode():
        plain = adapter.unload(keep=bakes(method))
    plain(first[0]).sum().backward()


def test_a_dead_adapter_cannot_touch_the_model(method, device):
    net = conv_net().to(device)
    dead = make(method, net=net)
    dead(stream(1, device=device)[0])
    dead.unload(keep=bakes(method))
    before = snapshot(net)
    for act in (dead.reset, dead.unload, dead.state_dict, lambda: dead.load_state_dict({}), dead.double):
        with pytest.raises(delta_tta.StateError, match="unloaded"):
            act()
    assert same(snapshot(net), before)
    alive = make(method, net=net)
    with pytest.raises(delta_tta.StateError, match="unloaded"):
        dead.unload()
    assert alive(stream(1, device=device)[0]).isfinite().all()
    with pytest.raises(ModelError, match="already"):
        make("tent", net=net)
