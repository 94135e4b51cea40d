"""Which methods and schedules the contract is tested with, and how adapters are made for it."""

import io
import itertools

import torch

import delta_tta
from delta_tta.adapt import recommended
from delta_tta.catalog import all_methods
from delta_tta.recipe import parse, used_settings
from nets import batches, conv_net

LONG = {"delta": "tbr+dot"}
COMPONENTS_OF = {m: {name for part in m.split("+") for name in LONG.get(part, part).split("+")} for m in all_methods()}


def cover(size):
    """Methods that contain every combination of `size` components at least once."""
    of = {m: set(itertools.combinations(sorted(names), min(size, len(names)))) for m, names in COMPONENTS_OF.items()}
    wanted, chosen = set().union(*of.values()), []
    while wanted:
        best = max(of, key=lambda m: len(of[m] & wanted))
        wanted -= of[best]
        chosen.append(best)
    return chosen


PAPER = ["bn", "tema", "tent", "tent+tema", "tent+tbr", "tent+dot", "pl+delta", "ent-w+delta", "lame", "eta", "eata"]
FEW = sorted({*cover(1), "tent+delta", "eta+delta", "tent+delta+lame", "anchored", "anchored+mirror+sticky"})
"""For the schedules other than "every": each component at least once."""
METHODS = sorted({*cover(2), *PAPER, *FEW})
SCHEDULES = {
    "every": {"update": "every"},
    "slow": {"update": "slow", "length": 8},
    "window": {"update": "window", "length": 8},
    "background": {"update": "every", "background": True},
    "slow in background": {"update": "slow", "length": 8, "background": True},
}


def fitting(net, method, *preset, **settings):
    """An adapter with those of the settings that the method has: one test serves many methods."""
    return delta_tta.adapt(net, method, *preset, **used_settings(method or recommended(net), settings))


def make(method, schedule=SCHEDULES["every"], net=None, device="cpu", shape=(3, 8, 8), **settings):
    """An adapter that learns fast, so that a broken promise shows."""
    net = (conv_net() if net is None else net).to(device)
    like = next(net.parameters())
    # MEMO takes a step of plain SGD on all weights; ROID weighs samples by up to e³
    lr = 1e-3 if "memo" in method else 2e-3 if method.startswith(("roid", "cmf")) else 0.02
    usual = {
        "optimizer": "adam", "lr": lr, "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "views": 2,
        "guard": "on", "rotta_interval": 4, "note_interval": 4, "deyo_plpd": -1.0,
    }  # fmt: skip
    source = [x.to(like) for x in batches(2, seed=9, shape=shape)] if "eata" in method else None
    return delta_tta.adapt(net, method, source=source, **used_settings(method, {**usual, **schedule, **settings}))


def stream(count=5, size=5, device="cpu", **kwargs):
    return [x.to(device) for x in batches(count, size=size, **kwargs)]


def saved_and_loaded(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def adapts(method):
    """Whether it changes the model."""
    recipe = parse(method)
    statistics = recipe.statistics not in ("source", "bn", "iabn")
    return (recipe.trains != "nothing" and recipe.standalone != "memo") or statistics


def bakes(method):
    """Whether a plain model can answer as it does, but for what mirror images and a filter add."""
    return all(one.bakes for one in parse(method).classes)


def learns(method):
    """Whether it has a loss."""
    return parse(method).trains != "nothing"


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
