"""Anchored statistics: the mixture, its averages and gradients, and how the share is chosen."""

import copy
import itertools

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta.evidence import LONGEST
from delta_tta.norms.anchored import SHARES, Anchored
from delta_tta.norms.layers import Phase, Tbr
from delta_tta.norms.selection import BATCH, DOUBT, best_slot
from delta_tta.settings import Settings
from nets import batches, bright, channel_net, conv_net, randomise_statistics, same, snapshot
from sentences import assert_same_state, fitting, saved_and_loaded

SLOTS = range(1, len(SHARES))
SIZE = (6, 3, 4, 5)


def source():
    return randomise_statistics(nn.BatchNorm2d(3)).double().eval()


def anchored(layer, slot=0, started=True):
    phase = Phase()
    phase.slot, phase.rates, phase.now = slot, (1.0,) * len(SHARES), "observing"
    made = Anchored(layer, None, Settings(), phase)
    if started:
        g = torch.Generator().manual_seed(1)
        made.mean = torch.randn(len(SLOTS), 3, generator=g, dtype=torch.float64)
        made.std = 0.5 + torch.rand(len(SLOTS), 3, generator=g, dtype=torch.float64)
    return made, phase


def mixed(made, layer, slot):
    """μ and σ, written out."""
    m = SHARES[slot]
    mean = (1 - m) * layer.running_mean + m * made.mean[slot - 1]
    std = (1 - m) * (layer.running_var + layer.eps).sqrt() + m * made.std[slot - 1]
    return mean, std


def images(seed=0, size=SIZE):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 1.7 + 0.4


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("phase", ["frozen", "observing", "replaying"])
def test_its_value_is_that_of_a_plain_layer_with_mixed_statistics(slot, phase):
    layer, x = source(), images()
    made, state = anchored(layer, slot)
    state.now = phase
    plain = copy.deepcopy(layer)
    mean, std = mixed(made, layer, slot)
    plain.running_mean, plain.running_var = mean, std**2 - layer.eps
    with torch.no_grad():
        assert torch.allclose(made(x), plain(x), atol=1e-12)
    assert torch.allclose(made(x), plain(x), atol=1e-12)


@pytest.mark.parametrize("slot", SLOTS)
def test_its_gradient_is_tbrs(slot):
    layer, g = source(), images(1)
    made, phase = anchored(layer, slot)
    tbr = Tbr(copy.deepcopy(layer), None, Settings(), phase)
    tbr.mean, tbr.std = mixed(made, layer, slot)
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


@pytest.mark.parametrize("slot", SLOTS)
def test_the_first_batch_is_mixed_in_with_its_own_statistics(slot):
    layer, x = source(), images()
    made, phase = anchored(layer, slot, started=False)
    y = made(x)
    made.commit()
    assert torch.allclose(made.mean, x.mean((0, 2, 3)).expand(len(SLOTS), 3))
    assert torch.allclose(made.std, (x.var((0, 2, 3), correction=0) + layer.eps).sqrt().expand(len(SLOTS), 3))
    phase.now = "frozen"
    assert torch.allclose(made(x), y, atol=1e-12)


@pytest.mark.parametrize("slot", [0, *SLOTS])
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


def brighter(seed, size=64):
    """Images of all classes, which the source takes for the last class; and their labels."""
    labels = torch.randint(10, (size,), generator=torch.Generator().manual_seed(seed))
    return bright(labels, seed=seed) + torch.tensor([0.0] * 9 + [2.0]).view(1, 10, 1, 1), labels


def shares(method="anchored", net=None, **settings):
    model = fitting(net or channel_net(), method, **settings)
    return model, model._updater.shares


def confident(labels, wrong=0.0, seed=0, classes=10, strength=6.0):
    """Logits of which so many are for another class."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.as_tensor(labels)
    other = torch.randint(classes, labels.shape, generator=g)
    said = torch.where(torch.rand(labels.shape, generator=g) < wrong, other, labels)
    return strength * nn.functional.one_hot(said, classes) + 0.5 * torch.randn(*labels.shape, classes, generator=g)


def compare(chooser, streams, mirrored=None):
    """Let it compare what each candidate says, batch by batch; return the slot chosen at the end."""
    for logits, others in zip(streams, mirrored or [None] * len(streams), strict=True):
        chooser.memory = chooser._compared(chooser.memory, logits, others)
    return chooser.memory.slot


@pytest.mark.parametrize("length", [1, 16])
def test_a_source_that_always_says_the_same_is_left(length):
    _, chooser = shares()
    g, rounds, mirrored = torch.Generator().manual_seed(0), [], []
    for seed in range(12):
        labels = torch.randint(10, (64 // length,), generator=g).repeat_interleave(length)
        for said, start in ((rounds, 0), (mirrored, 1000)):
            others = [confident(labels, 0.3, start + seed + 50 * s) for s in SLOTS]
            said.append([confident([3] * 64, seed=start + seed), *others])
    assert compare(chooser, rounds, mirrored) != 0


@pytest.mark.parametrize("length", [16, 64])
def test_a_source_that_works_stays_where_classes_come_one_after_the_other(length):
    """What the others say is as sure and more varied, and has no order."""
    _, chooser = shares()
    g, rounds = torch.Generator().manual_seed(0), []
    for seed in range(12):
        labels = torch.randint(10, (64 // length,), generator=g).repeat_interleave(length)
        rounds.append([confident(labels, 0.1, seed)] + [confident(labels, 0.9, seed + 50 * s) for s in SLOTS])
    assert compare(chooser, rounds) == 0


@pytest.mark.parametrize("best", SLOTS)
def test_the_source_answers_while_no_candidate_is_clearly_ahead(best):
    evidence = [100.0, 90.0, 90.0, 90.0]
    for ahead, slot in ((0.9 * DOUBT, 0), (1.1 * DOUBT, best)):
        evidence[best] = 100 + ahead
        assert best_slot(evidence) == slot
    _, chooser = shares()
    labels = torch.arange(64) % 10
    said = [confident(labels, 0.1)] * len(SHARES)
    better = [*said[:best], confident(labels, 0.1, strength=6.5), *said[best + 1 :]]
    assert compare(chooser, [better], [better]) == 0
    assert chooser.memory.evidence[0] < chooser.memory.evidence[best] < chooser.memory.evidence[0] + DOUBT


@pytest.mark.parametrize("best", range(len(SHARES)))
def test_on_a_shuffled_stream_the_one_that_says_the_same_of_mirror_images_is_taken(best):
    """Though it is the least sure."""
    _, chooser = shares()
    g, rounds, mirrored = torch.Generator().manual_seed(0), [], []
    wrong = [0.2 if slot == best else 0.5 for slot in range(len(SHARES))]
    sure = [3.0 if slot == best else 8.0 for slot in range(len(SHARES))]
    for seed in range(8):
        labels = torch.randint(10, (64,), generator=g)
        for said, start in ((rounds, 0), (mirrored, 1000)):
            said.append(
                [confident(labels, wrong[s], start + seed + 50 * s, strength=sure[s]) for s in range(len(SHARES))]
            )
    assert compare(chooser, rounds, mirrored) == best


def test_without_height_and_width_there_is_no_mirror_image():
    """And a stream without order says nothing: the source stays."""
    net = nn.Sequential(randomise_statistics(nn.BatchNorm1d(6)), nn.Linear(6, 10)).eval()
    x = [torch.randn(64, 6, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
    expected = [net(one) for one in x]
    model, chooser = shares("anchored+mirror", net)
    assert all(torch.allclose(model(one), want, atol=1e-5) for one, want in zip(x, expected, strict=True))
    assert chooser.memory.samples > 0


def test_answers_that_are_not_finite_decide_nothing():
    _, chooser = shares()
    compare(chooser, [[confident(range(10), seed=s) for s in range(4)]])
    before = chooser.memory
    broken = [confident(range(10)) for _ in range(4)]
    broken[2][3] = float("nan")
    fine = [confident(range(10)) for _ in range(4)]
    for pair in ((broken, None), (fine, broken)):
        after = chooser._compared(chooser.memory, *pair)
        assert (after.slot, after.samples, after.evidence) == (before.slot, before.samples, before.evidence)
        assert after.predictions is before.predictions


def test_the_candidates_are_compared_ever_more_rarely():
    model, chooser = shares()
    compared, own = [], chooser._compared
    chooser._compared = lambda *said: (compared.append(chooser.memory.batches), own(*said))[1]
    x = bright([i % 10 for i in range(64)])
    for _ in range(400):
        model(x)
    assert compared[:13] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18]
    gaps = [b - a for a, b in itertools.pairwise(compared)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == LONGEST


def test_small_batches_are_all_compared_until_there_are_enough_samples():
    model, chooser = shares()
    compared, own = [], chooser._compared
    chooser._compared = lambda *said: (compared.append(chooser.memory.batches), own(*said))[1]
    x = bright([i % 10 for i in range(16)])
    for _ in range(45):
        model(x)
    assert compared == [*range(24), 28, 35, 43]  # 384 samples, then after a quarter as many batches


def test_a_slot_that_missed_batches_follows_the_next_as_far_as_if_it_had_met_them():
    model, chooser = shares(alpha=0.9)
    seen, own = [], chooser._next
    x = bright([i % 10 for i in range(32)])
    for _ in range(40):
        own = chooser.memory
        model(x)
        seen.append((own, model._updater.adapted.phase.rates))
    for memory, rates in seen:
        for slot in SLOTS:
            missed = memory.batches - memory.last[slot]
            expected = max(1 / (memory.updates[slot] + 1), 1 - 0.9 ** ((1 + missed) * len(x) / BATCH))
            assert rates[slot] == pytest.approx(expected)
    assert any(memory.batches - memory.last[1] > 1 for memory, _ in seen)


@pytest.mark.parametrize(("size", "share"), [(16, 0.25), (64, 1.0), (200, 1.0)])
def test_small_batches_move_the_averages_by_less(size, share):
    model, _ = shares(alpha=0.9)
    x = bright([i % 10 for i in range(size)])
    for _ in range(60):
        model(x)
    chosen = model._updater.shares.memory.slot
    assert model._updater.adapted.phase.rates[chosen] == pytest.approx(max(1 / 60, 1 - 0.9**share))


@pytest.mark.parametrize("method", ["anchored", "tent+anchored"])
def test_an_adapter_leaves_a_source_that_fails(method):
    """It always says the last."""
    model, right = shares(method)[0], {True: 0, False: 0}
    for seed in range(12):
        x, labels = brighter(seed)
        with torch.no_grad():
            right[False] += int((channel_net().eval()(x).argmax(1) == labels).sum())
        right[True] += int((model(x).argmax(1) == labels).sum())
    assert model.signals.share > 0
    assert right[True] > 2 * right[False]


@pytest.mark.parametrize("method", ["anchored", "tent+anchored"])
def test_an_adapter_keeps_a_source_that_works_where_each_batch_is_of_one_class(method):
    model, right = shares(method)[0], 0
    for seed in range(12):
        labels = torch.full((40,), seed * 7 % 10)
        right += int((model(bright(labels, seed=seed)).argmax(1) == labels).sum())
    assert right > 0.95 * 12 * 40


@pytest.mark.parametrize("method", ["anchored", "tent+anchored", "anchored+lame"])
def test_a_saved_state_goes_on_with_the_share(method):
    xs = [brighter(seed)[0] for seed in range(16)]
    first, second = (shares(method)[0] for _ in range(2))
    for x in xs[:9]:
        first(x)
    assert first.signals.share > 0
    second(xs[0])
    second.load_state_dict(saved_and_loaded(first.state_dict()))
    assert second.signals.share == first.signals.share
    for x in xs[9:]:
        assert torch.equal(second(x), first(x))
    assert_same_state(second.state_dict(), first.state_dict())
    first.reset()
    assert first.signals.share in (None, 0.0)
    assert first.state_dict()["shares"] == {}


def test_a_damaged_share_is_refused():
    model, _ = shares()
    model(bright(range(10)))
    state = model.state_dict()
    for wrong in ({"counts": [1]}, {**state["shares"], "counts": [9, *state["shares"]["counts"][1:]]}, {"counts": 3}):
        with pytest.raises(delta_tta.StateError, match="damaged"):
            model.load_state_dict(delta_tta.engine.state.seal({**state, "shares": wrong}))


def test_unload_brings_back_the_source_or_keeps_the_mixture():
    for keep in (False, True):
        net = channel_net()
        before = snapshot(net)
        model = delta_tta.adapt(net, "tent+anchored", lr=0.01)
        for seed in range(6):
            x = brighter(seed)[0]
            model(x)
        frozen = model.predict(x)
        assert model.signals.share > 0
        plain = model.unload(keep=keep)
        assert isinstance(plain[0], nn.BatchNorm2d)
        if keep:
            assert torch.allclose(plain(x), frozen, atol=1e-4)
        else:
            assert same(snapshot(plain), before)


def test_a_batch_that_fails_leaves_the_slot_as_it_was():
    model, chooser = shares(net=(net := conv_net()))
    first, second, third = batches(3)
    model(first)
    twin, _ = shares(net=conv_net())
    twin(first)
    runs = []

    def fails_at_the_third(*_):
        runs.append(model._updater.adapted.phase.slot)
        if len(runs) == 3:
            raise ArithmeticError

    handle = net[-1].register_forward_hook(fails_at_the_third)
    with pytest.raises(ArithmeticError):
        model(second)
    handle.remove()
    assert runs == [0, 1, 2]
    assert model._updater.adapted.phase.slot == chooser.memory.slot
    assert torch.equal(model(third), twin(third))
    assert_same_state(model.state_dict(), twin.state_dict())
