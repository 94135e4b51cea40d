"""How the share of anchored statistics is chosen."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

import delta_tta
from all_methods import assert_same_state, fitting, saved_and_loaded
from delta_tta.evidence import LONGEST
from delta_tta.norms.anchored import SHARES
from delta_tta.rules.domain import LEAST
from delta_tta.rules.shares import BATCH, DOUBT, best_slot
from nets import batches, bright, channel_net, conv_net, randomise_statistics, same, snapshot

SLOTS = range(1, len(SHARES))


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
        chooser.memory = chooser._compared(chooser.memory, logits, others, None)
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
    evidence = [100.0, *[90.0] * (len(SHARES) - 1)]
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
    assert chooser.memory.answers.samples > 0


def test_answers_that_are_not_finite_decide_nothing():
    _, chooser = shares()
    compare(chooser, [[confident(range(10), seed=s) for s in range(len(SHARES))]])
    before = chooser.memory
    broken = [confident(range(10)) for _ in SHARES]
    broken[2][3] = float("nan")
    fine = [confident(range(10)) for _ in SHARES]
    for pair in ((broken, None), (fine, broken)):
        after = chooser._compared(chooser.memory, *pair, None)
        assert (after.slot, after.evidence) == (before.slot, before.evidence)
        assert after.answers is before.answers


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
    seen = []
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


@pytest.mark.parametrize(("size", "halved"), [(16, False), (64, True)])
def test_large_batches_are_measured_by_half_between_comparisons_only(size, halved):
    model, chooser = shares()
    x, found = bright([i % 10 for i in range(size)]), []
    for _ in range(40):
        compares = chooser.memory.batches >= chooser.memory.due
        model(x)
        found.append((compares, model._updater.adapted.phase.half))
    assert {half for compares, half in found if compares} == {False}
    assert {half for compares, half in found if not compares} == {halved}


@pytest.mark.parametrize(("size", "share"), [(16, 0.25), (64, 1.0), (200, 1.0)])
def test_small_batches_move_the_averages_by_less(size, share):
    model, chooser = shares(alpha=0.9)
    x = bright([i % 10 for i in range(size)])
    for _ in range(60):
        model(x)
    chosen = chooser.memory.slot
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
    reference, _ = shares(net=conv_net())
    reference(first)
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
    assert torch.equal(model(third), reference(third))
    assert_same_state(model.state_dict(), reference.state_dict())


def images(seed: int, blur: bool = False, size: int = 16) -> torch.Tensor:
    x = torch.randn(size, 3, 12, 12, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.avg_pool2d(4 * x, 5, 1, 2) if blur else x


def test_a_new_domain_begins_with_the_statistics_of_the_source_and_a_refused_batch_begins_none() -> None:
    guard = delta_tta.Guard(alike=0)  # noise is blank to a network that was never trained
    model = delta_tta.adapt(conv_net(), guard=guard)
    for seed in range(LEAST + 2):
        model(images(seed))
    before = model.state_dict()
    spoilt = images(0)
    spoilt[:] = 0.0
    spoilt[0, 0, 0, 0] = torch.nan
    model(spoilt)  # the guard refuses it
    after = model.state_dict()["shares"]
    assert after["counts"] == before["shares"]["counts"]
    assert torch.equal(after["domain"], before["shares"]["domain"])

    model(images(7, blur=True))
    shares = model.state_dict()["shares"]
    assert shares["counts"][1] == 1  # one batch of the new domain
    fresh = delta_tta.adapt(conv_net(), guard=guard)
    fresh(images(7, blur=True))
    for name, averages in fresh.state_dict()["statistics"].items():
        for key, value in averages.items():
            torch.testing.assert_close(model.state_dict()["statistics"][name][key], value)
