"""The contract that every method keeps, under every schedule.

A method that registers itself joins by being listed in `sentences()`.
"""

import copy
import io
import itertools

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta import InputError, ModelError
from delta_tta.recipe import parse, sentences
from nets import CLASSES, batches, conv_net, flat_net, group_norm, same, snapshot, volume_net

WORDS_OF = {method: set(str(method).replace("delta", "tbr+dot").split("+")) for method in sentences()}


def cover(size):
    """Sentences in which every `size` words that can stand together do so at least once."""
    wanted = {
        pair for words in WORDS_OF.values() for pair in itertools.combinations(sorted(words), min(size, len(words)))
    }
    chosen = []
    while wanted:
        best = max(WORDS_OF, key=lambda m: sum(set(pair) <= WORDS_OF[m] for pair in wanted))
        wanted -= {pair for pair in wanted if set(pair) <= WORDS_OF[best]}
        chosen.append(best)
    return chosen


PAPER = ["bn", "tema", "tent", "tent+tema", "tent+tbr", "tent+dot", "pl+delta", "ent-w+delta", "lame", "eta", "eata"]
FEW = sorted({*cover(1), "tent+delta", "eta+delta", "tent+delta+lame"})
"""For the schedules other than "every": each word at least once."""
METHODS = sorted({*cover(2), *PAPER, *FEW})
SCHEDULES = {
    "every": {},
    "slow": {"update": "slow", "length": 8},
    "window": {"update": "window", "length": 8},
    "background": {"background": True},
    "slow in background": {"update": "slow", "length": 8, "background": True},
}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def pytest_generate_tests(metafunc):
    if "schedule" in metafunc.fixturenames:
        pairs = [(m, s) for s in SCHEDULES for m in (METHODS if s == "every" else FEW)]
        ids = [f"{m}-{s}" for m, s in pairs]
        metafunc.parametrize(("method", "schedule"), [(m, SCHEDULES[s]) for m, s in pairs], ids=ids)
    elif "method" in metafunc.fixturenames:
        metafunc.parametrize("method", METHODS)


def make(method, schedule=SCHEDULES["every"], net=None, device="cpu", shape=(3, 8, 8), **settings):
    """An adapter that learns fast, so that a broken promise shows."""
    net = (conv_net() if net is None else net).to(device)
    like = next(net.parameters())
    lr = 1e-3 if method == "memo" else 0.02  # a step of plain SGD on all weights
    usual = {"optimizer": "adam", "lr": lr, "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "views": 2}
    source = [x.to(like) for x in batches(2, seed=9, shape=shape)] if "eata" in method else None
    return delta_tta.adapt(net, method, source=source, **{**usual, **schedule, **settings})


def stream(count=5, size=5, device="cpu", **kwargs):
    return [x.to(device) for x in batches(count, size=size, **kwargs)]


def saved_and_loaded(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def adapts(method):
    return (parse(method).trains != "nothing" and method != "memo") or parse(method).statistics == "tema"


def bakes(method):
    """Whether a plain model can answer as it does."""
    return parse(method).answer is None and method != "memo"


def learns(method):
    """Whether it has a loss."""
    return parse(method).trains != "nothing"


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
    norms = {f"{i}.{n}" for i in (1, 4) for n in ("weight", "bias")}
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


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_input_is_refused_and_changes_nothing(method, schedule, device, value):
    adapter, good = make(method, schedule, device=device), stream(3, device=device)
    adapter(good[0])
    before = saved_and_loaded(adapter.state_dict())
    bad = good[1].clone()
    bad[2, 1, 3, 3] = value
    for call in (adapter, adapter.predict):
        with pytest.raises(InputError, match=r"samples \[2\]"):
            call(bad)
    assert_same_state(adapter.state_dict(), before)
    assert adapter(good[2]).isfinite().all()


def assert_same_state(a, b):
    assert type(a) is type(b) or isinstance(a, dict)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same_state(a[key], b[key])
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    else:
        assert a == b


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
    twin = make(method, schedule, device=device)
    twin(xs[0])
    assert torch.equal(adapter(xs[2]), twin(xs[2]))
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
    adapter = make(method, schedule, net, device, gate=0.0)  # CoTTA without views
    for x in stream(device=device):
        adapter(x)
    x = stream(1, seed=3, device=device)[0]
    if keep and not bakes(method):
        with pytest.raises(delta_tta.StateError, match="a plain model cannot hold it"):
            adapter.unload(keep=True)
        return
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
    refused = (kind == "affine-free" and recipe.objective) or (
        kind == "group norm" and recipe.statistics != "source" and (recipe.statistics != "bn" or not learns(method))
    )
    if kind in ("1d", "3d") and (recipe.whole or method == "tta"):
        with pytest.raises(InputError, match="RGB images"):
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
    twin = copy.deepcopy(adapter)  # in the background the last update may still be running
    copied = [twin(x) for x in second]
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
