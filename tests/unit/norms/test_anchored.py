"""Anchored statistics: the mixture, its averages and gradients, and how the share is chosen."""

import copy

import pytest
import torch
from torch import nn

from all_methods import assert_same_state
from delta_tta.norms.anchored import Anchored
from delta_tta.norms.layers import Phase, Tbr
from delta_tta.rules.shares import OWN, SHARES
from delta_tta.settings import Settings
from nets import randomise_statistics

AVERAGED = range(1, OWN)
SLOTS = (*AVERAGED, OWN)


SIZE = (6, 3, 4, 5)


def source():
    return randomise_statistics(nn.BatchNorm2d(3)).double().eval()


def anchored(layer, slot=0, started=True):
    phase = Phase()
    phase.slot = phase.steady = slot
    phase.rates, phase.now = (1.0,) * len(SHARES), "observing"
    made = Anchored(layer, None, Settings(), phase)
    if started:
        g = torch.Generator().manual_seed(1)
        made.mean = torch.randn(OWN - 1, 3, generator=g, dtype=torch.float64)
        made.std = 0.5 + torch.rand(OWN - 1, 3, generator=g, dtype=torch.float64)
    return made, phase


def mixed(made, layer, slot, x=None):
    """μ and σ, written out; those of the batch x for the slot that uses a batch's own."""
    m = SHARES[slot]
    if slot == OWN:
        mean, std = x.mean((0, 2, 3)), (x.var((0, 2, 3), correction=0) + layer.eps).sqrt()
    else:
        mean, std = made.mean[slot - 1], made.std[slot - 1]
    source_std = (layer.running_var + layer.eps).sqrt()
    return (1 - m) * layer.running_mean + m * mean, (1 - m) * source_std + m * std


def images(seed=0, size=SIZE):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 1.7 + 0.4


@pytest.mark.parametrize(
    ("slot", "phase"),
    [
        *((slot, "frozen") for slot in AVERAGED),
        *((slot, phase) for slot in SLOTS for phase in ("observing", "replaying")),
    ],
)
def test_its_value_is_that_of_a_plain_layer_with_mixed_statistics(slot, phase):
    layer, x = source(), images()
    made, state = anchored(layer, slot)
    state.now = phase
    plain = copy.deepcopy(layer)
    mean, std = mixed(made, layer, slot, None if phase == "frozen" else x)
    plain.running_mean, plain.running_var = mean, std**2 - layer.eps
    with torch.no_grad():
        assert torch.allclose(made(x), plain(x), atol=1e-12)
    assert torch.allclose(made(x), plain(x), atol=1e-12)


@pytest.mark.parametrize("slot", SLOTS)
def test_its_gradient_is_tbrs(slot):
    layer, g = source(), images(1)
    made, phase = anchored(layer, slot)
    tbr = Tbr(copy.deepcopy(layer), None, Settings(), phase)
    tbr.mean, tbr.std = mixed(made, layer, slot, images())
    gradients = []
    for norm in (made, tbr):
        x = images().requires_grad_()
        gradients.append(torch.autograd.grad(norm(x), (x, norm.source.weight, norm.source.bias), g))
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(*gradients, strict=True))


def test_the_first_slot_is_the_source_and_has_no_averages():
    layer, x = source(), images()
    made, phase = anchored(layer, 0)
    assert torch.allclose(made(x), layer(x), atol=1e-12)
    before = made.mean.clone(), made.std.clone()
    made.commit()
    assert torch.equal(made.mean, before[0])
    assert torch.equal(made.std, before[1])
    phase.now = "frozen"
    assert torch.allclose(made(x), layer(x), atol=1e-12)


@pytest.mark.parametrize("slot", [0, *SLOTS])
def test_before_any_batch_it_is_the_source(slot):
    layer, x = source(), images()
    made, phase = anchored(layer, slot, started=False)
    phase.now = "frozen"
    assert torch.allclose(made(x), layer(x), atol=1e-12)
    assert made.settled
    assert made.remembered() == {}


@pytest.mark.parametrize("slot", AVERAGED)
def test_the_first_batch_is_mixed_in_with_its_own_statistics(slot):
    layer, x = source(), images()
    made, phase = anchored(layer, slot, started=False)
    y = made(x)
    made.commit()
    assert torch.allclose(made.mean, x.mean((0, 2, 3)).expand(len(AVERAGED), 3))
    assert torch.allclose(made.std, (x.var((0, 2, 3), correction=0) + layer.eps).sqrt().expand(len(AVERAGED), 3))
    phase.now = "frozen"
    assert torch.allclose(made(x), y, atol=1e-12)


def test_where_it_observes_nothing_it_uses_the_steady_slot():
    layer, x = source(), images()
    made, phase = anchored(layer, OWN)
    phase.now, phase.steady = "frozen", 2
    plain = copy.deepcopy(layer)
    mean, std = mixed(made, layer, 2)
    plain.running_mean, plain.running_var = mean, std**2 - layer.eps
    assert torch.allclose(made(x), plain(x), atol=1e-12)


@pytest.mark.parametrize("slot", [0, *AVERAGED])
def test_a_plain_layer_can_hold_it(slot):
    layer, x = source(), images()
    made, phase = anchored(layer, slot)
    phase.now = "frozen"
    plain = copy.deepcopy(layer)
    plain.running_mean, plain.running_var = made.baked()
    assert torch.allclose(plain(x), made(x), atol=1e-12)


def test_each_slot_keeps_its_own_averages():
    made, phase = anchored(source())
    phase.rates = (1.0, 0.5, 0.25, 0.125)
    before = made.mean.clone(), made.std.clone()
    phase.slot = 2
    made(images())
    made.commit()
    assert torch.equal(made.mean[[0, 2]], before[0][[0, 2]])
    assert torch.equal(made.std[[0, 2]], before[1][[0, 2]])
    assert not torch.equal(made.mean[1], before[0][1])
    middle = made.mean[1].clone()
    for slot, seed in ((1, 1), (3, 2)):
        phase.slot = slot
        made(images(seed))
    made.commit()
    assert torch.equal(made.mean[1], middle)
    for slot, seed in ((1, 1), (3, 2)):
        mean, rate = images(seed).mean((0, 2, 3)), phase.rates[slot]
        assert torch.allclose(made.mean[slot - 1], (1 - rate) * before[0][slot - 1] + rate * mean)


def test_the_variance_counts_what_lies_between_batches():
    made, phase = anchored(source(), 1)
    a, (mean, std) = 0.3, (made.mean[0].clone(), made.std[0].clone())
    phase.rates = (a,) * len(SHARES)
    x = images()
    made(x)
    made.commit()
    mean_b, var_b = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0) + made.source.eps
    assert torch.allclose(made.mean[0], (1 - a) * mean + a * mean_b)
    assert torch.allclose(made.std[0] ** 2, (1 - a) * (std**2 + a * (mean_b - mean) ** 2) + a * var_b)


def test_at_rates_of_a_plain_mean_the_averages_are_those_of_all_samples():
    made, phase = anchored(source(), 2, started=False)
    xs = [images(seed) + seed for seed in range(5)]
    for n, x in enumerate(xs, 1):
        phase.rates = (1 / n,) * len(SHARES)
        made(x)
        made.commit()
    everything = torch.cat(xs)
    assert torch.allclose(made.mean[1], everything.mean((0, 2, 3)))
    assert torch.allclose(made.std[1] ** 2, everything.var((0, 2, 3), correction=0) + made.source.eps)


@pytest.mark.parametrize("learns", [False, True])
def test_half_a_batch_is_measured_where_half_is_enough_but_a_gradient_needs_it_whole(learns):
    layer, x = source(), images()
    made, state = anchored(layer, slot=2)
    state.half = True
    with torch.set_grad_enabled(learns):
        made(x)
    mean, _ = made.seen
    assert torch.allclose(mean, (x if learns else x[3:]).mean((0, 2, 3)), atol=1e-12)


def test_what_is_discarded_or_dropped_leaves_no_trace():
    made, phase = anchored(source(), 1)
    before = made.remembered()
    made(images())
    made.discard()
    made.commit()
    assert_same_state(made.remembered(), before)
    made(images())
    phase.slot = 3
    made(images(1))
    made.drop(3)
    made.commit()
    assert torch.equal(made.mean[2], before["mean"][2])
    assert not torch.equal(made.mean[0], before["mean"][0])


def test_a_layer_without_statistics_normalises_with_the_streams():
    layer = nn.BatchNorm2d(3, track_running_stats=False).double()
    made, phase = anchored(layer, 2, started=False)
    x = images()
    expected = layer(x)
    for phase.slot in (0, 2):
        assert torch.allclose(made(x), expected, atol=1e-9)
    made.commit()
    phase.now = "frozen"
    assert torch.allclose(made(x), expected, atol=1e-9)
    assert torch.allclose(made.baked()[0], x.mean((0, 2, 3)))
