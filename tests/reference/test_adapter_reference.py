"""The whole adapter equals the plain implementation: logits, parameters, z and moving averages."""

import copy
import itertools

import pytest
import torch

from all_methods import fitting
from nets import batches, conv_net, flat_net
from plain import PlainAdapter

STEPS = 12


def close(a, b):
    return torch.allclose(a, b, rtol=1e-9, atol=1e-9)


def run_both(net, stream, objective, statistics, dot, optimizer, reduction, **settings):
    lr = 1e-2
    plain = PlainAdapter(copy.deepcopy(net), objective, statistics, dot, optimizer, lr, reduction, **settings)
    kl = "+kl-div" if "kl_weight" in settings else ""
    parts = ["" if statistics == "bn" else f"+{statistics}", "+dot" if dot else "", kl]
    ours = fitting(
        net,
        objective + "".join(parts),
        lr=lr,
        optimizer=optimizer,
        reduction=reduction,
        dot=dot or "hard",
        **{"init": "first", "lam": 0.9, **settings},
    )
    used = []
    for x in stream:
        assert close(ours(x), plain(x))
        used.append(ours.signals.used)
    state = ours.state_dict()
    for mine, theirs in zip(state["parameters"].values(), plain.parameters, strict=True):
        assert close(mine, theirs)
    if statistics != "bn":
        for mine, theirs in zip(state["statistics"].values(), plain.norms, strict=True):
            assert close(mine["mean"], theirs.mean)
            assert close(mine["std"], theirs.std)
    if kl:
        assert close(state["reweighting"]["average"], torch.stack(plain.mean_so_far))
    if dot:
        assert close(ours.signals.frequencies, plain.z)
        assert float(plain.z.max() - plain.z.min()) > 0.02  # the comparison is about something
    return used


@pytest.mark.parametrize("reduction", ["batch", "selected"])
@pytest.mark.parametrize("dot", [None, "hard", "soft"])
@pytest.mark.parametrize("statistics", ["bn", "tema", "tbr"])
@pytest.mark.parametrize("objective", ["tent", "pl", "ent-w"])
def test_every_combination_of_components(objective, statistics, dot, reduction):
    for optimizer in ("sgd", "adam"):
        net = conv_net(sharp=1.5).double()
        stream = batches(STEPS, size=10, dtype=torch.float64)
        used = run_both(net, stream, objective, statistics, dot, optimizer, reduction)
        if objective == "tent":
            assert used == [1.0] * STEPS
        else:
            assert any(0 < share < 1 for share in used)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(("objective", "threshold"), [("tent", None), ("ent-w", 0.62)])
def test_the_divergence_of_the_moving_average_from_uniform(objective, threshold, optimizer):
    net = conv_net(sharp=1.0).double()
    stream = batches(20, size=2, dtype=torch.float64)  # fewer samples than classes
    settings = {"kl_weight": 10.0, "threshold": threshold}
    used = run_both(net, stream, objective, "tbr", None, optimizer, "selected", init="inherit", **settings)
    assert (0.0 in used) == (objective == "ent-w")  # the average moves where nothing trains


@pytest.mark.parametrize("init", ["first", "inherit"])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.999])
def test_start_and_speed_of_the_averages(init, alpha):
    stream = batches(STEPS, size=9, shape=(6,), dtype=torch.float64)
    net = flat_net().double()
    run_both(net, stream, "tent", "tbr", "hard", "adam", "batch", init=init, alpha=alpha, lam=0.7)


@pytest.mark.parametrize("objective", ["pl", "ent-w"])
def test_thresholds_and_batches_that_select_nothing(objective):
    """Momentum must not move on a batch in which nothing is selected, statistics and z must."""
    net = conv_net(sharp=1.0).double()
    threshold = {"pl": 0.65, "ent-w": 0.62}[objective]
    stream = batches(20, size=2, dtype=torch.float64)
    used = run_both(net, stream, objective, "tbr", "hard", "sgd", "selected", threshold=threshold, init="inherit")
    assert 0.0 in used
    assert any(0 in (a, b) and a + b > 0 for a, b in itertools.pairwise(used))
