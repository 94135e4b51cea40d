"""The contract that every method keeps, under every schedule: state, answers, failures, layers.

A method that registers itself joins by being listed in `all_methods()`.
"""

import pytest
import torch
from torch import nn

import delta_tta
from all_methods import (
    adapts,
    assert_same_state,
    bakes,
    learns,
    make,
    saved_and_loaded,
    stream,
)
from delta_tta import InputError, ModelError
from delta_tta.recipe import parse, used_settings
from delta_tta.registry import COMPONENTS
from nets import CLASSES, conv_net, flat_net, group_norm, same, snapshot, volume_net


def test_every_pair_of_components_that_can_stand_together_runs(method):
    adapter = make(method)
    for x in stream(2):
        assert adapter(x).isfinite().all()


def test_reset_restores_the_source_bit_for_bit(method, schedule, device):
    net = conv_net().to(device)
    source = snapshot(net)
    adapter = make(method, schedule, net, device)
    fresh = snapshot(net)
    first = [adapter(x) for x in stream(device=device)]
    adapter.wait()
    if adapts(method):
        assert not same(snapshot(net), fresh)
    adapter.reset()
    assert same(snapshot(net), fresh)
    assert adapter.signals.step == adapter.signals.samples == 0
    assert all(torch.equal(a, adapter(x)) for a, x in zip(first, stream(device=device), strict=True))
    assert same(snapshot(adapter.unload()), source)


def test_a_saved_state_resumes_bit_for_bit(method, schedule, device):
    before, after = stream(3, device=device), stream(3, seed=1, device=device)
    never_stopped = make(method, schedule, device=device)
    for x in before:
        never_stopped(x)
    state = saved_and_loaded(never_stopped.state_dict())
    resumed = make(method, schedule, device=device)
    resumed(after[0])  # whatever it had learnt is replaced
    resumed.load_state_dict(state)
    assert resumed.signals.step == 3
    for x in after:
        assert torch.equal(resumed(x), never_stopped(x))
    assert resumed.signals.samples == never_stopped.signals.samples


def test_modes_of_the_caller_change_nothing(method, schedule, device):
    def net():
        return nn.Sequential(nn.BatchNorm2d(3), *conv_net())  # its first layer keeps the images for the gradient

    plain = make(method, schedule, net(), device)
    expected = [plain(x).clone() for x in stream(device=device)]
    for around in (torch.no_grad, torch.inference_mode):
        adapter = make(method, schedule, net().train(), device)
        for i, x in enumerate(stream(device=device)):
            adapter.train()
            adapter.wait()
            adapter.model.train(i % 2 == 0)
            adapter.model[7].train()  # dropout alone
            with around():
                logits = adapter(x + 0)  # under inference_mode an inference tensor
            assert torch.equal(logits, expected[i])
            assert not logits.requires_grad


def test_gradients_reach_only_the_declared_parameters(method, schedule, device):
    net = conv_net().to(device)
    objective = parse(method).objective
    fixed = COMPONENTS[objective].build.fixed(["1", "4"]) if objective else ()
    norms = {f"{i}.{n}" for i in ("1", "4") for n in ("weight", "bias") if i not in fixed}
    declared = {"nothing": set(), "norms": norms, "all": {name for name, _ in net.named_parameters()}}
    declared = declared[parse(method).trains]
    before = dict(net.named_parameters())
    values = {name: p.detach().clone() for name, p in before.items()}
    adapter = make(method, schedule, net, device)
    assert {name for name, p in before.items() if p.requires_grad} == declared
    for x in stream(device=device):
        adapter(x.requires_grad_())
        adapter.wait()
        assert x.grad is None
        assert all(p.grad is None for p in before.values())
    changed = {name for name, p in before.items() if not torch.equal(p, values[name])}
    assert changed == (declared if adapts(method) else set())


@pytest.mark.parametrize("kind", ["one sample", "constant", "one class"])
def test_finite_whatever_comes(method, schedule, device, kind):
    base = stream(1, 1, device=device)[0]
    inputs = {
        "one sample": stream(9, 1, device=device),
        "constant": [torch.full((4, 3, 8, 8), 0.5, device=device)] * 5,
        "one class": [base.expand(6, -1, -1, -1) + 0.01 * x for x in stream(5, 6, device=device)],
    }[kind]
    adapter = make(method, schedule, device=device)
    for x in inputs:
        assert adapter(x).isfinite().all()
    adapter.wait()
    assert all(t.isfinite().all() for t in adapter.model.state_dict().values())


def test_non_finite_input_is_refused_and_changes_nothing(method, schedule, device):
    adapter, good = make(method, {**schedule, "guard": "off"}, device=device), stream(3, device=device)
    adapter(good[0])
    before = saved_and_loaded(adapter.state_dict())
    for value in (float("nan"), float("inf"), float("-inf")):
        bad = good[1].clone()
        bad[2, 1, 3, 3] = value
        for call in (adapter, adapter.predict):
            with pytest.raises(InputError, match=r"samples \[2\]"):
                call(bad)
        assert_same_state(adapter.state_dict(), before)
    assert adapter(good[2]).isfinite().all()


def test_the_guard_answers_non_finite_input_and_learns_nothing(method, schedule, device):
    adapter, good = make(method, schedule, device=device), stream(3, device=device)
    adapter(good[0])
    before = saved_and_loaded(adapter.state_dict())
    bad = good[1].clone()
    bad[2, 1, 3, 3] = float("nan")
    assert adapter(bad).isfinite().all()
    assert adapter.signals.refused == 1
    counted = ("step", "samples", "guard", "checksum")
    after = {**adapter.state_dict(), **{key: before[key] for key in counted}}
    assert_same_state(after, before)
    assert adapter(good[2]).isfinite().all()


class Bomb(nn.Module):
    """Goes off in the forward pass when it is armed."""

    armed = False

    def forward(self, x):
        if self.armed:
            raise ArithmeticError("a layer of the user's model failed")
        return x


def test_a_failure_inside_the_model_leaves_everything_in_place(method, schedule, device):
    net, bomb = conv_net(), Bomb()
    net.insert(5, bomb)
    source = snapshot(net)
    adapter = make(method, schedule, net, device)
    xs = stream(4, size=3, device=device)
    adapter(xs[0])
    before = saved_and_loaded(adapter.state_dict())
    bomb.armed = True
    with pytest.raises(ArithmeticError):
        adapter(xs[1])
    bomb.armed = False
    assert_same_state(adapter.state_dict(), before)
    reference = make(method, schedule, device=device)
    reference(xs[0])
    assert torch.equal(adapter(xs[2]), reference(xs[2]))
    assert same({k: v.cpu() for k, v in snapshot(adapter.unload()).items()}, source)


def test_predict_answers_without_adapting(method, schedule, device):
    adapter = make(method, schedule, device=device)
    for x in stream(3, device=device):
        adapter(x)
    before = saved_and_loaded(adapter.state_dict())
    x = stream(1, seed=3, device=device)[0]
    assert torch.equal(adapter.predict(x), adapter.predict(x))
    assert_same_state(adapter.state_dict(), before)


@pytest.mark.parametrize("keep", [False, True])
def test_unload_gives_back_the_original_modules(method, schedule, device, keep):
    net = conv_net().to(device)
    source, modules = snapshot(net), list(net.modules())
    without_views = used_settings(method, {"gate": 0.0})  # CoTTA's
    adapter = make(method, schedule, net, device, **without_views)
    for x in stream(device=device):
        adapter(x)
    x = stream(1, seed=3, device=device)[0]
    if keep and not bakes(method):
        with pytest.raises(delta_tta.StateError, match="a plain model cannot hold it"):
            adapter.unload(keep=True)
        return
    adapter.wait()
    adapter._filter = None  # a plain model leaves the filter and the mirror images behind
    if parse(method).postprocess == "mirror":
        adapter._updater.postprocess = None
    frozen = adapter.predict(x)
    plain = adapter.unload(keep=keep)
    assert plain is net
    assert all(a is b for a, b in zip(net.modules(), modules, strict=True))
    assert all(p.requires_grad for p in net.parameters())
    if keep:
        assert not net.training
        assert torch.allclose(net(x), frozen, rtol=1e-5, atol=1e-5)
    else:
        assert net.training
        assert same(snapshot(net), source)
    with pytest.raises(delta_tta.StateError, match="unloaded"):
        adapter(x)


def test_signals_tell_what_happened(method, schedule, device):
    adapter = make(method, schedule, device=device)
    for x in stream(4, size=4, device=device):
        adapter(x)
    s, recipe = adapter.signals, parse(method)
    assert (s.step, s.samples) == (4, 16)
    assert s.entropy >= 0
    assert (s.loss is not None) == learns(method)
    assert (s.used is not None) == learns(method)
    assert (s.frequencies is not None) == (recipe.reweighting in ("dot", "la"))
    if s.frequencies is not None:
        assert s.frequencies.shape == (CLASSES,)
        assert float(s.frequencies.sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("kind", ["1d", "2d", "3d", "sync", "affine-free", "statistics-free", "group norm"])
def test_every_norm_layer_or_a_clear_error(method, device, kind):
    nets = {
        "1d": (flat_net, (6,)),
        "2d": (conv_net, (3, 8, 8)),
        "3d": (volume_net, (2, 4, 4, 4)),
        "sync": (lambda: conv_net(nn.SyncBatchNorm), (3, 8, 8)),
        "affine-free": (lambda: conv_net(lambda c: nn.BatchNorm2d(c, affine=False)), (3, 8, 8)),
        "statistics-free": (lambda: conv_net(lambda c: nn.BatchNorm2d(c, track_running_stats=False)), (3, 8, 8)),
        "group norm": (lambda: conv_net(group_norm), (3, 8, 8)),
    }
    build, shape = nets[kind]
    net, recipe = build(), parse(method)
    source = snapshot(net)
    needs_statistics = any(getattr(one, "needs_statistics", False) for one in recipe.classes)
    refused = (
        (kind == "affine-free" and recipe.trains == "norms")
        or (kind == "statistics-free" and needs_statistics)
        or (kind == "group norm" and recipe.needs_batch_norm)
    )
    looks = recipe.objective is not None and COMPONENTS[recipe.objective].build.looks
    if kind in ("1d", "3d") and (used_settings(method, {"mean": None}) or looks):  # it changes images
        with pytest.raises(InputError, match=r"images.* \(B, "):
            make(method, net=net, shape=shape)(stream(1, shape=shape)[0])
        return
    if refused:
        with pytest.raises(ModelError, match="Write '"):
            make(method, net=net, shape=shape)
    else:
        adapter = make(method, net=net, device=device, shape=shape)
        for x in stream(3, shape=shape, device=device):
            assert adapter(x).isfinite().all()
        adapter.unload()
    assert same({k: v.cpu() for k, v in snapshot(net).items()}, source)
