"""Streams whose batches are unlike each other: seen in the source's labels, and answered with moving averages."""

import copy
import itertools
import logging
import random
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import delta_tta
from delta_tta import Guard, dependence
from delta_tta.norms.layers import BatchStatistics, MovingAverage, Tbr, Tema
from delta_tta.pace import Look
from nets import bright, channel_net, flatten

SIZE = 40
OWN_STATISTICS = ["bn", "tent", "ent-w", "tent+dot", "bn+lame"]

tables = st.integers(2, 5).flatmap(
    lambda classes: st.lists(
        st.lists(st.integers(0, 6), min_size=classes, max_size=classes).filter(any), min_size=2, max_size=5
    )
)


def table(batches, classes=10):
    return torch.stack([torch.as_tensor(labels).bincount(minlength=classes) for labels in batches])


@given(tables)
def test_coherence_counts_pairs(counts):
    samples = [(b, k) for b, row in enumerate(counts) for k, n in enumerate(row) for _ in range(n)]
    pairs = list(itertools.combinations(samples, 2))
    own = [x[1] == y[1] for x, y in pairs if x[0] == y[0]]
    other = [x[1] == y[1] for x, y in pairs if x[0] != y[0]]
    expected = sum(own) / len(own) - sum(other) / len(other) if own else 0.0
    assert dependence.coherence(torch.tensor(counts)) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=4, max_size=6))
def test_surprise_is_in_deviations_over_all_ways_to_deal_the_samples(samples):
    batches, labels = zip(*samples, strict=True)

    def dealt(labels):
        found = torch.zeros(3, 3, dtype=torch.int64)
        for batch, label in zip(batches, labels, strict=True):
            found[batch, label] += 1
        return found

    ways = [dependence.coherence(dealt(way)) for way in itertools.permutations(labels)]
    deviation = statistics.pstdev(ways)
    assert statistics.fmean(ways) == pytest.approx(0, abs=1e-9)
    expected = dependence.coherence(dealt(labels)) / deviation if deviation > 1e-9 else 0
    assert dependence.surprise(dealt(labels)) == pytest.approx(expected, abs=1e-6)


def test_what_could_not_be_otherwise_is_no_surprise():
    assert dependence.surprise(torch.tensor([[10, 0], [20, 0]])) == 0  # a source that knows one class
    assert dependence.surprise(torch.tensor([[10, 20]])) == 0
    assert dependence.surprise(torch.empty(0, 0, dtype=torch.int64)) == 0


@pytest.mark.parametrize("sizes", [[250, *[4] * 65], [4] * 128, [16, 120] * 4])
def test_batches_of_any_sizes_without_order_are_no_surprise(sizes):
    rng = random.Random(0)
    streams = [table([rng.choices(range(10), [50, *[1] * 9], k=size) for size in sizes]) for _ in range(200)]
    found = [dependence.surprise(each) for each in streams]
    assert statistics.fmean(found) == pytest.approx(0, abs=0.2)
    assert statistics.pstdev(found) == pytest.approx(1, abs=0.2)
    assert sum(each > dependence.SURE for each in found) <= 2


def test_of_streams_with_two_classes_and_no_order_few_are_a_surprise_at_any_batch():
    rng, found = random.Random(0), []
    for _ in range(400):
        labels = table([rng.choices(range(2), k=64) for _ in range(8)], classes=2)
        found.append(max(dependence.surprise(labels[:met]) for met in range(2, 9)))
    assert sum(each > dependence.SURE for each in found) <= 8


@pytest.mark.parametrize("weights", [[1] * 10, [20, 10, 5, 3, 2, 1, 1, 1, 1, 1], [50, *[1] * 9]])
def test_without_order_neither_is_more_than_chance(weights):
    rng = random.Random(0)
    streams = [table([rng.choices(range(10), weights, k=64) for _ in range(8)]) for _ in range(400)]
    found = [dependence.coherence(each) for each in streams]
    assert abs(sum(found)) / len(found) < 1e-3
    assert max(dependence.surprise(each) for each in streams) < dependence.SURE
    assert sum(dependence.surprise(each) for each in streams) / len(streams) == pytest.approx(0, abs=0.2)


@pytest.mark.parametrize(("size", "kept"), [(64, 8), (16, 32), (300, 4)])
def test_the_table_holds_the_first_batches(size, kept):
    labels = torch.empty(0, 0, dtype=torch.int64)
    for batch in range(1, kept + 1):
        assert not dependence.complete(labels)
        labels = dependence.with_batch(labels, torch.tensor([size - batch, batch]))
    assert dependence.complete(labels)
    assert labels[:, 1].tolist() == list(range(1, kept + 1))


def mixed(count, seed=0):
    """Batches of all classes."""
    rng = random.Random(seed)
    return [[rng.randrange(10) for _ in range(SIZE)] for _ in range(count)]


def in_turn(count):
    """Batches of one class each."""
    return [[b % 10] * SIZE for b in range(count)]


def images(batches):
    return [bright(labels, seed=seed) for seed, labels in enumerate(batches)]


def adapter(method="tent", net=None, **settings):
    return delta_tta.adapt(net or channel_net(), method, **{"lr": 1e-3, **settings})


def right(model, batches):
    answers = torch.cat([model(x).argmax(1) for x in images(batches)])
    return float((answers == torch.tensor(batches).flatten()).float().mean())


@pytest.mark.parametrize("method", OWN_STATISTICS)
def test_one_class_after_the_other_is_answered_as_well_as_by_the_source(method, caplog):
    stream = in_turn(20)
    assert right(adapter(method, guard="off"), stream) < 0.5
    model = adapter(method)
    with caplog.at_level(logging.WARNING, "delta_tta"):
        assert right(model, stream) > 0.99
    assert model.signals.dependent
    assert model.signals.rollbacks == 0
    assert [r.getMessage() for r in caplog.records] == [
        "delta-tta: normalising with moving averages from batch 1 on: it shows few classes"
    ]


@pytest.mark.parametrize("method", OWN_STATISTICS)
@pytest.mark.parametrize("background", [False, True])
def test_a_first_batch_of_many_classes_puts_it_off_by_a_batch_or_two(method, background, caplog):
    stream = [*mixed(1), *in_turn(20)]
    model = adapter(method, background=background)
    assert right(model, stream) > 0.9
    assert model.signals.dependent
    assert "two samples of one batch get the same label more often, by" in caplog.text


def test_order_that_comes_late_is_noticed():
    model = adapter("bn")
    right(model, mixed(100))
    assert not model.signals.dependent
    right(model, in_turn(dependence.EVERY))
    assert model.signals.dependent


def test_a_source_that_fails_differently_from_place_to_place_is_no_order():
    """Every sixteen batches the source comes to prefer another class; those with statistics of their own do not."""
    free, watched = adapter("bn", guard="off"), adapter("bn")
    for i, x in enumerate(images(mixed(2 * dependence.EVERY + 16))):
        x[:, i // 16 % 10] += 1
        assert torch.equal(free(x), watched(x))
    assert not watched.signals.dependent
    own = watched._learner.logits_of_source(x).argmax(1).bincount(minlength=10)
    assert own.max() > 3 * SIZE / 10


@pytest.mark.parametrize(("sharpness", "few"), [((9, 2), True), ((2, 9), False)])
def test_of_two_looks_the_more_certain_one_counts(sharpness, few):
    """The source sees one class, the model from a start so chosen all of them."""
    one, all_of_them = torch.eye(10)[[0] * SIZE], torch.eye(10).repeat(SIZE // 10, 1)
    learner, x = adapter("tema")._learner, images(in_turn(1))[0]

    def source_sees():
        learner.logits_of_source(x)
        return sharpness[0] * one

    seen = learner.pacer.choose_start(source_sees, lambda: sharpness[1] * all_of_them)
    assert seen.pace == pytest.approx(0.1 if few else 1.0, abs=0.01)
    assert dependence.few_classes(seen) == few


@pytest.mark.parametrize(("size", "limit"), [(64, 0.4), (16, 0.2)])
def test_small_batches_show_few_classes_less_easily(size, limit):
    assert dependence.few_classes(Look(size, limit - 0.01, 0.0))
    assert not dependence.few_classes(Look(size, limit, 0.0))


def test_frames_of_one_clip_after_the_other():
    """Images of a batch that hardly differ: nothing could be more dependent."""
    stream, model = in_turn(12), adapter("bn")
    for labels in stream:
        one = bright(labels[:1])
        assert (model(one + 0.01 * torch.randn(SIZE, 10, 4, 4)).argmax(1) == labels[0]).all()
    assert model.signals.dependent


@pytest.mark.parametrize("method", OWN_STATISTICS)
@pytest.mark.parametrize("schedule", [{}, {"update": "slow", "length": 64}, {"update": "window"}, {"episodic": True}])
def test_a_stream_without_order_is_left_alone_bit_for_bit(method, schedule):
    free, watched = adapter(method, guard="off", **schedule), adapter(method, **schedule)
    for x in images(mixed(24)):
        assert torch.equal(free(x), watched(x))
    assert watched._watch._labels.sum() >= dependence.SAMPLES
    assert not watched.signals.dependent
    ours, theirs = (flatten({**each.state_dict(), "guard": {}}) for each in (free, watched))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_a_source_that_prefers_a_class_and_a_stream_that_has_more_of_one_are_no_order():
    model = adapter("bn")
    for x in images(mixed(24)):
        x[:, 3] += 1.0
        model(x)
    assert not model.signals.dependent
    assert model._watch._labels[:, 3].sum() > dependence.SAMPLES / 3

    rng, model = random.Random(0), adapter("bn")
    right(model, [rng.choices(range(10), [3, *[1] * 9], k=SIZE) for _ in range(24)])
    assert not model.signals.dependent


@pytest.mark.parametrize("settings", [{"guard": Guard(coherence=1)}, {"guard": "off"}, {"prior": 16.0}])
def test_it_can_be_left_out(settings):
    model = adapter("bn", **settings)
    right(model, in_turn(12))
    assert not model.signals.dependent
    assert isinstance(model.model[0], BatchStatistics)


def test_methods_with_averages_have_no_need():
    for method in ("tema", "tent+delta", "source"):
        model = adapter(method)
        right(model, in_turn(3))
        assert not model.signals.dependent


@pytest.mark.parametrize("stream", [[*mixed(3), *in_turn(9)], in_turn(12)], ids=["later", "at once"])
@pytest.mark.parametrize("method", ["bn", "tent+dot"])
def test_a_saved_state_goes_on(method, stream):
    stream = images(stream)
    straight = adapter(method)
    expected = [straight(x) for x in stream]
    for cut in (1, 4, 6):
        first = adapter(method)
        for x in stream[:cut]:
            first(x)
        second = adapter(method)
        second.load_state_dict(first.state_dict())
        assert second.signals.dependent == first.signals.dependent
        assert all(torch.equal(second(x), y) for x, y in zip(stream[cut:], expected[cut:], strict=True))


def test_a_state_with_averages_goes_on_without_a_guard_and_reset_forgets_them():
    stream = images(in_turn(8))
    watched, free = adapter("bn"), adapter("bn", guard="off")
    for x in stream[:4]:
        watched(x)
    free.load_state_dict(watched.state_dict())
    assert all(torch.equal(free(x), watched(x)) for x in stream[4:])
    free.reset()
    assert not free.signals.dependent
    assert torch.equal(free(stream[0]), adapter("bn", guard="off")(stream[0]))
    watched.load_state_dict(adapter("bn").state_dict())
    assert not watched.signals.dependent
    assert isinstance(watched.model[0], BatchStatistics)


def test_a_state_of_other_layers_is_refused():
    watched = adapter("bn")
    watched(images(in_turn(1))[0])
    state = watched.state_dict()
    state["statistics"]["0"]["mean"] = torch.zeros(3)
    with pytest.raises(delta_tta.StateError):
        adapter("bn").load_state_dict(delta_tta.state.seal(state))


def test_a_model_taken_out_has_the_averages():
    watched = adapter("bn")
    x = [watched(x) for x in images(in_turn(4))] and images(in_turn(4))[3]
    expected = watched.predict(x)
    plain = watched.unload(keep=True)
    assert type(plain[0]) is torch.nn.BatchNorm2d
    assert torch.allclose(plain(x), expected, atol=1e-5)


def weakly_ordered(count):
    """Batches of all classes with seven samples of one class: too little for a verdict in a few batches."""
    return [[*labels[:-7], *[b % 10] * 7] for b, labels in enumerate(mixed(count))]


def first_dependent(model, stream):
    return next((i for i, x in enumerate(stream, 1) if model(x) is not None and model.signals.dependent), None)


def test_weak_evidence_adds_up_over_a_saved_state():
    stream = images(weakly_ordered(12))
    noticed = first_dependent(adapter("bn"), stream)
    assert noticed is not None
    assert noticed > 4
    first, second = adapter("bn"), adapter("bn")
    assert first_dependent(first, stream[: noticed - 1]) is None
    second.load_state_dict(first.state_dict())
    assert first_dependent(second, stream[noticed - 1 :]) == 1
    assert first_dependent(adapter("bn"), stream[noticed - 1 : noticed + 1]) is None, "these alone are too few"


def test_less_coherence_than_allowed_is_left_alone():
    stream = images(weakly_ordered(12))
    assert first_dependent(adapter("bn", guard=Guard(coherence=0.5)), stream) is None
    assert first_dependent(adapter("bn", guard=Guard(coherence=0.5)), [*images(mixed(1)), *images(in_turn(6))]) == 3


def test_a_few_samples_are_no_evidence_though_their_batches_are_of_one_class():
    stream = [x[:2] for x in images(in_turn(20))]
    noticed = first_dependent(adapter("bn", update="every"), stream)
    assert noticed is not None
    assert noticed > 4


def test_a_method_without_a_loss_gets_tema_and_one_with_a_loss_tbr():
    for method, layer in (("bn", Tema), ("tent", Tbr)):
        model = adapter(method)
        model(images(in_turn(1))[0])
        assert type(model.model[0]) is layer


@pytest.mark.parametrize("method", OWN_STATISTICS)
def test_the_background_comes_to_the_same_bits(method):
    stream = images([*mixed(3), *in_turn(9)])
    front, behind = adapter(method), adapter(method, background=True)
    assert all(torch.equal(front(x), behind(x)) for x in stream)
    assert front.signals.dependent
    ours, theirs = (flatten(each.state_dict()) for each in (front, behind))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def rate(model):
    return model._learner.optimizer.param_groups[0]["lr"]


def test_after_a_collapse_the_rate_stays_down_when_statistics_are_given_up():
    model = adapter("tent", lr=30.0)
    for x in images(mixed(3)):
        model(x)
    assert model.signals.rollbacks == 1
    assert not model.signals.dependent
    assert rate(model) == pytest.approx(0.3)
    assert first_dependent(model, images(in_turn(4))) is not None
    assert model.signals.rollbacks == 1
    assert rate(model) == pytest.approx(0.3)


def test_a_collapse_later_does_not_bring_them_back():
    model = adapter("tent", guard=Guard(every=6))
    for x in images(mixed(12)):
        model(x)
    assert model._watch._good is not None
    for x in images(in_turn(2)):
        model(x)
    assert model.signals.dependent
    with torch.no_grad():
        for p in model._learner.subject.parameters.values():
            p.mul_(-3)
    for x in images(mixed(6, seed=1)):
        model(x)
    assert model.signals.rollbacks > 0
    assert model.signals.dependent
    assert isinstance(model.model[0], MovingAverage)
    assert right(model, mixed(4, seed=2)) > 0.9


def test_a_gradient_that_fails_after_the_statistics_were_given_up_changes_nothing():
    stream = images(in_turn(3))
    model = adapter("tent")
    state = model.state_dict()

    def fail(*_):
        raise StopError

    def spoil(_layer, _images, logits):
        if logits.requires_grad:
            logits.register_hook(fail)

    hook = model.model[-1].register_forward_hook(spoil)
    with pytest.raises(StopError):
        model(stream[0])
    hook.remove()
    assert model.state_dict()["checksum"] == state["checksum"]
    assert not model.signals.dependent
    assert isinstance(model.model[0], BatchStatistics)
    straight = adapter("tent")
    assert all(torch.equal(model(x), straight(x)) for x in stream)


class StopError(Exception):
    """Raised by a model in mid batch."""


@pytest.mark.parametrize("method", ["bn", "tent"])
@pytest.mark.parametrize("before", [0, 2])
def test_a_batch_that_fails_changes_nothing(method, before):
    """Whichever of the passes fails: the source's, the second look, the batch's own."""
    stream = images([*mixed(before), *in_turn(6)])
    straight = adapter(method)
    expected = [straight(x) for x in stream]
    for fails in range(4):
        watched, passes = adapter(method), []

        def raise_once(*_, passes=passes, fails=fails):
            passes.append(1)
            if len(passes) == fails + 1:
                raise StopError

        for x in stream[:before]:
            watched(x)
        state = copy.deepcopy(watched.state_dict())
        hook = watched.model[-1].register_forward_hook(raise_once)
        for x in stream[before : before + 3]:
            try:
                watched(x)
            except StopError:
                break
            state = copy.deepcopy(watched.state_dict())
        else:
            pytest.fail("the model did not fail")
        hook.remove()
        assert watched.state_dict()["checksum"] == state["checksum"]
        done = watched.signals.step
        assert all(torch.equal(watched(x), y) for x, y in zip(stream[done:], expected[done:], strict=True))


def test_hooks_of_a_user_stay():
    net, seen = channel_net(), []
    net[0].register_forward_hook(lambda layer, *_: seen.append(type(layer)))
    model = adapter("bn", net)
    for x in images([*mixed(1), *in_turn(4)]):
        model(x)
    assert issubclass(seen[-1], MovingAverage)


def test_what_was_learnt_with_misleading_statistics_is_forgotten():
    model = adapter("tent", lr=0.05)
    model(images(mixed(1))[0])
    parameters, source = model._learner.subject.parameters, model._learner.subject.source
    assert any(not torch.equal(p, source[name]) for name, p in parameters.items())
    model._watch.heed_dependence(images(in_turn(2))[1])
    assert model._learner.averaging
    assert all(torch.equal(p, source[name]) for name, p in parameters.items())
