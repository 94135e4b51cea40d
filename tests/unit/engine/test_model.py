"""Models that do unusual things: right answers, or one clear sentence; and they get back what was theirs."""

import pytest
import torch
from torch import nn

import delta_tta
from all_methods import SCHEDULES, fitting, make
from delta_tta import InputError, ModelError
from delta_tta.engine.fisher import fisher
from nets import batches, conv_net, group_norm, same, same_state, snapshot

ALL = [
    *("source", "bn", "tema", "tent", "tent+delta", "tent+anchored", "eta", "eata"),
    *("cotta", "memo", "tta", "lame", "tent+delta+lame"),
]


WAYS = {
    "a new tensor": lambda x: (x - 0.4) / 1.7,
    "in place": lambda x: x.sub_(0.4).div_(1.7),
    "a view in place": lambda x: x.view(len(x), -1).sub_(0.4).div_(1.7).view_as(x),
    "data": lambda x: x.data.sub_(0.4).div_(1.7),
    "without gradients in place": lambda x: (x - 0.4) / 1.7 if torch.is_grad_enabled() else x.sub_(0.4).div_(1.7),
}


class Scaled(nn.Module):
    """Normalises its input first, in one way or another."""

    def __init__(self, way):
        super().__init__()
        self.way, self.net = way, conv_net()

    def forward(self, x):
        return self.net(WAYS[self.way](x))


def assert_the_same(way, method, schedule, xs, around=torch.enable_grad):
    adapter, reference = (make(method, schedule, Scaled(w), guard="on") for w in (way, "a new tensor"))
    for x in xs:
        before = x.clone()
        with around():
            came = adapter(x), adapter.predict(x)
        assert torch.equal(x, before)
        assert torch.equal(came[0], reference(x))
        assert torch.equal(came[1], reference.predict(x))
    assert same_state(adapter, reference)


@pytest.mark.parametrize("method", ALL)
def test_a_model_may_change_its_input_in_place(method):
    assert_the_same("in place", method, SCHEDULES["every"], batches(3))


@pytest.mark.parametrize("schedule", ["slow", "window", "background", "slow in background"])
@pytest.mark.parametrize("method", ["bn", "tent+delta+lame", "cotta"])
def test_a_model_may_change_its_input_in_place_under_every_schedule(method, schedule):
    assert_the_same("in place", method, SCHEDULES[schedule], batches(4, size=5))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", ["tent", "tent+delta"])
def test_however_it_does_so(way, method):
    assert_the_same(way, method, {"update": "auto", "length": 8}, [*batches(3, size=3), *batches(3)])


def test_an_input_that_counts_no_changes():
    with torch.inference_mode():
        xs = batches(4)
    assert xs[0].is_inference()
    assert_the_same("in place", "tent+delta", {}, xs)
    assert_the_same("in place", "tent+delta", {}, batches(4), torch.inference_mode)
    measured = [
        fisher(make("eata", net=Scaled(way), lr=0.01)._updater, [x.clone() for x in xs])
        for way in ("in place", "a new tensor")
    ]
    assert all(torch.equal(value, measured[1][name]) for name, value in measured[0].items())


class Clipping(Scaled):
    """Changes its input only where it must."""

    def forward(self, x):
        if x.max() > 100:
            x.clamp_(max=100)
        return self.net(x)


@pytest.mark.parametrize("method", ["tent+delta", "cotta"])
def test_a_model_that_begins_to_change_its_input_is_noticed(method):
    adapter, reference = (make(method, net=Clipping("")) for _ in range(2))
    a, b, c = batches(3)
    b[0, 0, 0, 0] = 101
    adapter(a), reference(a)
    with pytest.raises(InputError, match=r"in place.*Nothing was learnt from it"):
        adapter(b.clone())
    assert same_state(adapter, reference)
    for x in (b, c):
        assert torch.equal(adapter(x.clone()), reference(x.clamp(max=100)))
    assert same_state(adapter, reference)


class Overwriting(nn.Module):
    """Changes the input of its first norm after the layer has run, from a given run on."""

    def __init__(self, after):
        super().__init__()
        net = conv_net()
        self.conv, self.norm, self.rest, self.after = net[0], net[1], net[2:], after

    def forward(self, x):
        h = self.conv(x)
        y = self.norm(h)
        if self.after <= 0:
            h.mul_(3)
        self.after -= 1
        return self.rest(y)


@pytest.mark.parametrize("method", ["tent", "tent+tema", "tent+delta", "tent+anchored", "cotta", "memo"])
def test_features_that_are_changed_before_they_are_learnt_from(method):
    adapter, reference = make(method, net=Overwriting(0)), make(method, net=Overwriting(0))
    for x in batches(2):
        with pytest.raises(ModelError, match="input of layer 'norm' in place after"):
            adapter(x)
    assert same_state(adapter, reference)
    assert isinstance(adapter.unload().norm, nn.BatchNorm2d)


@pytest.mark.parametrize("guard", ["on", "off"])
def test_features_that_are_changed_where_nothing_is_selected(guard):
    net, x = Overwriting(10**6), batches(1)[0]
    adapter = delta_tta.adapt(net, "ent-w+delta", threshold=1e-6, guard=guard)
    adapter(x)
    assert adapter.signals.skipped == "no sample passed the threshold"
    net.after = 0
    for again in (adapter, delta_tta.adapt(Overwriting(0), "ent-w+delta", threshold=1e-6, guard=guard)):
        with pytest.raises(ModelError, match="input of layer 'norm' in place after"):
            again(x)


def test_features_that_are_changed_in_the_middle_of_a_stream():
    adapter = delta_tta.adapt(Overwriting(3), "tent+delta")
    xs = batches(4)
    for x in xs[:3]:
        adapter(x)
    before = adapter.state_dict()
    with pytest.raises(ModelError, match="input of layer 'norm' in place after"):
        adapter(xs[3])
    assert adapter.state_dict()["checksum"] == before["checksum"]


@pytest.mark.parametrize("method", ["bn", "tema", "tta", "lame", "source"])
def test_methods_without_a_loss_need_no_features(method):
    adapter, reference = make(method, net=Overwriting(0)), make(method, net=Overwriting(10**6))
    assert all(torch.equal(adapter(x), reference(x)) for x in batches(4))


def test_a_forward_set_on_a_norm_layer_is_refused():
    net = conv_net()
    plain = net[4].forward
    net[4].forward = lambda x: 2 * plain(x)
    for method in ("bn", "tent+delta", "cotta"):
        with pytest.raises(ModelError, match=r"Layer '4', a BatchNorm2d, has a forward that was set on the object"):
            make(method, net=net)
    assert isinstance(net[4], nn.BatchNorm2d)
    assert all(p.requires_grad for p in net.parameters())
    x = batches(1)[0]
    assert torch.equal(make("source", net=net)(x), net.eval()(x))


class Listed(nn.Module):
    """Runs layers that it keeps in a list."""

    def __init__(self):
        super().__init__()
        self.net = conv_net()
        self.layers = list(self.net)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Partly(Listed):
    """Keeps one of them elsewhere."""

    def forward(self, x):
        return self.net[5:](self.layers[4](self.net[:4](x)))


class Functional(nn.Module):
    """Reads its norm layer and normalises by itself."""

    def __init__(self):
        super().__init__()
        self.norm, self.rest = nn.BatchNorm2d(3), conv_net(nn.Identity)

    def forward(self, x):
        n = self.norm
        return self.rest(nn.functional.batch_norm(x, n.running_mean, n.running_var, n.weight, n.bias))


@pytest.mark.parametrize("method", ["bn", "tema", "tent", "tent+delta", "cotta", "memo"])
@pytest.mark.parametrize(
    ("kind", "what"), [(Listed, "layer 'net.1'"), (Partly, "layer 'net.4'"), (Functional, "its batch norms")]
)
def test_layers_that_are_passed_by(method, kind, what):
    net = kind()
    adapter = make(method, net=net)
    x = batches(1)[0]
    for call in (adapter, adapter.predict, adapter):
        with pytest.raises(ModelError, match=f"does not run what was put in the place of {what}: it keeps"):
            call(x)
    assert adapter.signals.step == 0
    adapter.unload()
    assert net(x).isfinite().all()


def scripted(net):
    return torch.jit.script(net.eval())


COMPILED = {
    "script": (scripted, "compiled by TorchScript"),
    "trace": (lambda net: torch.jit.trace(net.eval(), batches(1)[0]), "compiled by TorchScript"),
    "freeze": (lambda net: torch.jit.freeze(scripted(net)), "compiled by TorchScript"),
    "export": (lambda net: torch.export.export(net.eval(), (batches(1)[0],)).module(), "exported by torch.export"),
    "unflatten": (
        lambda net: torch.export.unflatten(torch.export.export(net.eval(), (batches(1)[0],))),
        "exported by torch.export",
    ),
}
RGB = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
uses_torch_jit = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@uses_torch_jit
@pytest.mark.parametrize("how", COMPILED)
def test_a_model_whose_layers_are_layers_no_more(how):
    compiled, what = COMPILED[how]
    net = compiled(conv_net())
    for method in ("tent", "source", "cotta"):
        with pytest.raises(ModelError, match=rf"The model was {what}.*Give the nn.Module that it was made from"):
            fitting(net, method, **RGB)
    with pytest.raises(ModelError, match=f"Layer '0' was {what}"):
        delta_tta.adapt(nn.Sequential(net, nn.BatchNorm1d(5)), "tent")


@uses_torch_jit
def test_parts_that_torch_has_compiled_without_norm_layers_do_no_harm():
    adapter = make("tent+delta", net=nn.Sequential(scripted(nn.Hardtanh(-1.0, 1.0)), conv_net()))
    reference = make("tent+delta", net=nn.Sequential(nn.Hardtanh(-1.0, 1.0), conv_net()))
    assert all(torch.equal(adapter(x), reference(x)) for x in batches(3))
    traced = make("tent+delta", net=nn.Sequential(nn.Hardtanh(-1.0, 1.0), torch.fx.symbolic_trace(conv_net())))
    reference.reset()
    assert all(torch.equal(traced(x), reference(x)) for x in batches(3))
    x = batches(1)[0]
    assert torch.equal(make("source", net=nn.Sequential(scripted(conv_net())))(x), conv_net().eval()(x))


@pytest.mark.parametrize("method", ["tent", "tent+delta+lame", "eta", "pl", "cotta", "memo", "lame"])
@pytest.mark.parametrize("update", ["every", "auto"])
def test_a_single_class_is_refused(method, update):
    adapter = make(method, {"update": update}, conv_net(classes=1))
    for call in (adapter, adapter.predict):
        with pytest.raises(InputError, match=r"at least two classes, but got shape \(\d, 1\)"):
            call(batches(1, size=4)[0])
    assert adapter.signals.step == 0


@pytest.mark.parametrize("method", ["source", "tta", "bn", "tema"])
def test_a_single_class_will_do_where_probabilities_are_not_asked_for(method):
    adapter = make(method, net=conv_net(classes=1))
    assert all(adapter(x).shape == (12, 1) for x in batches(3))


@pytest.mark.parametrize(
    ("method", "dtype"),
    [(method, dtype) for method in ("tent", "tent+delta") for dtype in (torch.float32, torch.bfloat16)]
    + [("cotta", torch.float32)],
)
def test_gradients_of_the_user_stay(method, dtype):
    net = conv_net().to(dtype)
    for i, p in enumerate(net.parameters()):
        p.grad = torch.full_like(p, i)
    adapter, reference = make(method, net=net), make(method, net=conv_net().to(dtype))
    for x in batches(3, dtype=dtype):
        assert torch.equal(adapter(x), reference(x))
        assert all(torch.equal(p.grad, torch.full_like(p, i)) for i, p in enumerate(net.parameters()))
    assert adapter.signals.loss is not None
    adapter.unload()
    assert all(p.grad.dtype == p.dtype == dtype for p in net.parameters())


@pytest.mark.parametrize("outer_first", [False, True])
@pytest.mark.parametrize("order", ["inner, outer", "outer, inner"])
@pytest.mark.parametrize(("norm", "inner"), [(nn.BatchNorm2d, "source"), (group_norm, "tent")])
def test_adapters_around_a_part_and_the_whole_give_back_what_was_there(norm, inner, order, outer_first):
    net = nn.Sequential(conv_net(norm), nn.Linear(5, 5), nn.BatchNorm1d(5))
    net[0][0].weight.requires_grad_(False)
    net[0][6].eval()
    flags = [p.requires_grad for p in net.parameters()]
    modes, values = [m.training for m in net.modules()], snapshot(net)
    outer = "source" if outer_first and inner == "source" else "tent"
    kinds = [("outer", net, outer), ("inner", net[0], inner)]
    adapters = {name: make(method, net=part) for name, part, method in (kinds if outer_first else kinds[::-1])}
    first, second = (adapters[name] for name in order.split(", "))
    x = batches(1)[0]
    for adapter in (first, second, first):
        assert adapter(x).isfinite().all()
    first.unload()
    assert second(x).isfinite().all()
    second.unload()
    assert [p.requires_grad for p in net.parameters()] == flags
    assert [m.training for m in net.modules()] == modes
    assert same(snapshot(net), values)


def test_an_adapter_goes_on_when_the_one_that_learns_nothing_is_unloaded():
    net, reference = nn.Sequential(conv_net()), make("tent+delta", net=nn.Sequential(conv_net()))
    around = make("source", net=net)
    inside = make("tent+delta", net=net[0])
    a, b = batches(2)
    assert torch.equal(inside(a), reference(a))
    around.unload()
    assert torch.equal(inside(b), reference(b))
