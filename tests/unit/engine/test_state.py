"""What a state file holds, and which it refuses."""

import io

import pytest
import torch
from torch import nn

import delta_tta
from all_methods import assert_same_state, saved_and_loaded
from delta_tta import StateError
from delta_tta.engine.state import seal
from nets import batches, conv_net, flat_net


def adapter_with_state(**settings):
    adapter = delta_tta.adapt(conv_net(), "tent+delta", "cifar10-c", **settings)
    for x in batches(3):
        adapter(x)
    return adapter, adapter.state_dict()


def size_of(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.tell()


def test_the_state_is_kilobytes_and_not_the_model():
    net = conv_net()
    net.insert(9, torch.nn.Sequential(torch.nn.Linear(16, 4096), torch.nn.Linear(4096, 16)))
    adapter = delta_tta.adapt(net, "tent+delta", "cifar10-c")
    adapter(batches(1)[0])
    assert size_of(net.state_dict()) > 500_000
    assert size_of(adapter.state_dict()) < 30_000


def test_a_state_is_a_copy():
    adapter, state = adapter_with_state()
    kept = {k: v.clone() for k, v in state["parameters"].items()}
    mean = state["statistics"]["1"]["mean"].clone()
    moment = state["optimizer"]["1.weight"]["exp_avg"].clone()
    for x in batches(3, seed=1):
        adapter(x)
    assert all(torch.equal(state["parameters"][k], kept[k]) for k in kept)
    assert torch.equal(state["statistics"]["1"]["mean"], mean)
    adapter.load_state_dict(state)
    for x in batches(3, seed=1):
        adapter(x)
    assert torch.equal(state["statistics"]["1"]["mean"], mean)
    assert torch.equal(state["optimizer"]["1.weight"]["exp_avg"], moment)


def test_a_state_travels_between_foreground_and_background():
    _, state = adapter_with_state()
    other = delta_tta.adapt(conv_net(), "tent+delta", "cifar10-c", background=True)
    other.load_state_dict(state)
    assert other.signals.samples == 36


def damage(path, value):
    def apply(state):
        *parents, last = path
        for key in parents:
            state = state[key]
        if value is KeyError:
            del state[last]
        else:
            state[last] = value

    return apply


DAMAGES = [
    (damage(["format"], "something else"), "saved by an adapter"),
    (damage(["format"], KeyError), "saved by an adapter"),
    (damage(["method"], "pl+delta"), "make one with adapt"),
    (damage(["settings", "lr"], 7.0), "lr=7.0 (here 0.001)"),
    (damage(["settings"], KeyError), "damaged"),
    (damage(["parameters", "1.weight"], torch.ones(9)), "another model"),
    (damage(["parameters", "1.weight"], KeyError), "another model"),
    (damage(["parameters", "1.weight"], 3), "damaged"),
    (damage(["parameters"], KeyError), "damaged"),
    (damage(["statistics", "99"], {"mean": torch.ones(8), "std": torch.ones(8)}), "another model"),
    (damage(["statistics", "1"], {"mean": torch.ones(8)}), "another model"),
    (damage(["optimizer", "1.weight", "exp_avg"], torch.ones(3)), "another model"),
    (damage(["optimizer", "1.weight", "exp_avg"], KeyError), "another model"),
    (damage(["settings", "from_the_future"], 1), "from_the_future=1 (here None)"),
    (damage(["reweighting", "z"], torch.ones(3)), "damaged"),
    (damage(["step"], "many"), "damaged"),
    (damage(["objective"], None), "damaged"),
    (damage(["cache"], 5), "damaged"),
    (damage(["classes"], "five"), "damaged"),
    (damage(["model"], KeyError), "damaged"),
]


@pytest.mark.parametrize(("change", "teaches"), DAMAGES)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change, teaches):
    """Also where the checksum is right, as someone has made it anew."""
    adapter, state = adapter_with_state()
    before = adapter.state_dict()
    change(state)
    with pytest.raises(StateError) as error:
        adapter.load_state_dict(seal(state))
    assert teaches in str(error.value)
    assert_same_state(adapter.state_dict(), before)


@pytest.mark.parametrize(
    "change",
    [
        *(change for change, _ in DAMAGES),
        damage(["samples"], 37),
        damage(["step"], 3.0),
        damage(["settings", "background"], True),
        damage(["checksum"], "0" * 64),
        damage(["checksum"], KeyError),
        damage(["something"], "more"),
        damage(["something"], {1, 2}),
        damage([5], "a key that is no text"),
        lambda state: state["parameters"]["1.weight"].view(torch.uint8)[0].bitwise_xor_(1),
        lambda state: state["reweighting"].update(z=state["reweighting"]["z"].half()),
        lambda state: state["parameters"].update({"1.bias": state["parameters"]["1.bias"].view(2, 4)}),
        lambda state: state["optimizer"].update(
            {"1.bias": state["optimizer"]["1.weight"], "1.weight": state["optimizer"]["1.bias"]}
        ),
        lambda state: state["reweighting"].update(z=state["reweighting"]["z"].to("meta")),
        lambda state: state["reweighting"].update(z=state["reweighting"]["z"].to_sparse()),
    ],
)
def test_a_state_that_was_changed_is_refused_and_changes_nothing(change):
    adapter, state = adapter_with_state()
    before = adapter.state_dict()
    change(state)
    with pytest.raises(StateError, match=r"damaged.*load an intact copy"):
        adapter.load_state_dict(state)
    assert_same_state(adapter.state_dict(), before)


def test_a_state_of_the_first_format_is_refused():
    adapter, state = adapter_with_state()
    del state["checksum"], state["model"]
    state["format"] = "delta-tta state 1"
    with pytest.raises(StateError, match=r"\('delta-tta state 6'\), but found 'delta-tta state 1'"):
        adapter.load_state_dict(state)


def test_a_state_of_the_second_format_is_refused():
    adapter, state = adapter_with_state()
    del state["shares"], state["filter"]
    state = seal({**state, "format": "delta-tta state 2", "pace": {}})
    with pytest.raises(StateError, match=r"\('delta-tta state 6'\), but found 'delta-tta state 2'"):
        adapter.load_state_dict(state)


def changed(index, module):
    net = conv_net()
    net[index] = module
    return net


OTHERS = {
    "deeper": lambda: nn.Sequential(*conv_net()[:3], nn.Sequential(nn.Identity()), *conv_net()[4:]),
    "longer": lambda: nn.Sequential(*conv_net(), nn.Identity()),
    "wider": lambda: changed(0, nn.Conv2d(4, 8, 3, padding=1, bias=False)),
    "more classes": lambda: conv_net(classes=6),
    "another kind": lambda: changed(2, nn.GELU()),
    "another norm": lambda: conv_net(nn.SyncBatchNorm),
    "with a bias": lambda: changed(0, nn.Conv2d(3, 8, 3, padding=1)),
    "another kernel": lambda: changed(0, nn.Conv2d(3, 8, 5, padding=2, bias=False)),
    "no statistics": lambda: conv_net(lambda c: nn.BatchNorm2d(c, track_running_stats=False)),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_state_of_a_model_that_differs_elsewhere_is_refused(other):
    """The adapted layers may have the same names and shapes: a state says of which model they are part."""
    _, state = adapter_with_state()
    adapter = delta_tta.adapt(OTHERS[other](), "tent+delta", "cifar10-c")
    before = adapter.state_dict()
    with pytest.raises(StateError, match=r"Expected a state of this model \(Sequential, .* saved for another model"):
        adapter.load_state_dict(saved_and_loaded(state))
    assert_same_state(adapter.state_dict(), before)


def test_a_state_of_another_model_is_refused():
    _, state = adapter_with_state()
    with pytest.raises(StateError, match="another model"):
        delta_tta.adapt(flat_net(), "tent+delta", "cifar10-c").load_state_dict(state)
    with pytest.raises(StateError, match="saved by an adapter"):
        delta_tta.adapt(flat_net(), "tent+delta").load_state_dict(conv_net().state_dict())
    with pytest.raises(StateError, match="list"):
        delta_tta.adapt(flat_net(), "tent+delta").load_state_dict([1])


def test_a_state_without_a_newer_setting_still_loads():
    adapter, state = adapter_with_state()
    del state["settings"]["episodic"]
    fresh = delta_tta.adapt(conv_net(), "tent+delta", "cifar10-c")
    fresh.load_state_dict(seal(state))
    assert fresh.signals.step == adapter.signals.step == 3
    x = batches(1)[0]
    assert torch.equal(fresh(x), adapter(x))


def older(state, **own):
    """The state as it was when `Settings` had a field for each setting of this package, but for some in `extra`."""
    unused = {"similarity": 0.4, "restore": 0.01, "symmetric": False, "views": 32, "filter": "smooth", "lam": 0.95}
    values = {name: value for name, value in state["settings"].items() if not name.startswith("sar_")}
    return seal({**state, "settings": {**unused, **values, "extra": tuple(own.items())}})


def test_a_state_of_before_components_declared_their_settings_loads():
    adapter = delta_tta.adapt(conv_net(), "sar+tbr", "cifar10-c", sar_rho=0.1)
    adapter(batches(1)[0])
    assert adapter.state_dict()["settings"]["sar_recovery"] == 0.2
    again = delta_tta.adapt(conv_net(), "sar+tbr", "cifar10-c", sar_rho=0.1)
    again.load_state_dict(older(adapter.state_dict(), sar_rho=0.1))
    assert_same_state(again.state_dict(), adapter.state_dict())
    with pytest.raises(StateError, match=r"with other settings: sar_rho=0\.2 \(here 0\.1\)\."):
        again.load_state_dict(older(adapter.state_dict(), sar_rho=0.2))


def test_a_float32_state_loads_into_a_float64_model():
    _, state = adapter_with_state(update="slow", length=16)
    wide = delta_tta.adapt(conv_net().double(), "tent+delta", "cifar10-c", update="slow", length=16)
    wide.load_state_dict(state)
    for x in batches(3, dtype=torch.float64):
        assert wide(x).dtype == torch.float64


def test_keep_with_a_source_prior_is_refused_and_nothing_lost():
    adapter = delta_tta.adapt(conv_net(), "bn", prior=8)
    x = batches(1)[0]
    before = adapter(x)
    with pytest.raises(StateError, match="prior"):
        adapter.unload(keep=True)
    assert torch.equal(adapter(x), before)
