"""The guard: bad batches are answered and never learnt from; a collapse is undone; health is left alone."""

import logging

import pytest
import torch
from torch import nn

from all_methods import fitting
from delta_tta import Guard, SettingError
from delta_tta.engine.step import Updater
from nets import batches, conv_net, flat_net, flatten, without_counts

WILD = {"lr": 5.0, "optimizer": "sgd", "init": "first"}


def adapter(method="tent+delta", net=None, **settings):
    return fitting(net or conv_net(), method, **{"guard": "on", "update": "every", **settings})


def assert_unchanged(before, after):
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


def parameters(watched):
    return watched.state_dict()["parameters"]


def rate(watched):
    """The learning rate that the rollbacks have left; it shows in no answer where nothing is learnt."""
    return watched._updater.optimizer.param_groups[0]["lr"]


def counted(watched):
    """How many batches were counted, and at which the two are compared next."""
    return watched.state_dict()["guard"]["counts"][2:4]


@pytest.fixture
def asked(monkeypatch):
    """How many samples the reference was asked about, batch by batch."""
    sizes, own = [], Updater.logits_of_reference
    monkeypatch.setattr(Updater, "logits_of_reference", lambda self, x: (sizes.append(len(x)), own(self, x))[1])
    return sizes


def batches_asked(watched, stream, asked):
    """Answer a stream; return at which of its batches, from 1, the reference was asked."""
    found = []
    for number, x in enumerate(stream, 1):
        before = len(asked)
        watched(x)
        found += [number] * (len(asked) - before)
    return found


@pytest.mark.parametrize(
    "method",
    ["tema", "tent", "tent+delta", "ent-w+delta", "lame", "tent+delta+lame", "anchored", "tent+anchored+dot+sticky"],
)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_batch_with_a_value_that_is_not_finite_is_answered_and_not_learnt_from(method, value):
    watched, (first, second, third) = adapter(method), batches(3)
    watched(first)
    before = without_counts(watched.state_dict())
    bad = second.clone()
    bad[2, 1, 3, 3] = value
    zeroed = second.clone()
    zeroed[2, 1, 3, 3] = 0
    assert torch.equal(watched(bad), watched.predict(zeroed))
    assert watched.signals.skipped == "not finite: input, samples [2]"
    assert (watched.signals.refused, watched.signals.step) == (1, 2)
    assert_unchanged(before, without_counts(watched.state_dict()))
    other = adapter(method)
    other(first)
    assert torch.equal(watched(third), other(third))  # as if the bad batch had never come


def test_whole_rows_are_answered_as_if_alone_where_rows_are_independent():
    watched, (first, second) = adapter(), batches(2)
    watched(first)
    alone = watched.predict(second[:5])
    bad = second.clone()
    bad[5:] = float("nan")
    assert torch.allclose(watched(bad)[:5], alone, atol=1e-6)


class Spoiled(nn.Module):
    """Its logits are not finite while `bad` is set and it is adapted (its γ is not the source's)."""

    def __init__(self):
        super().__init__()
        self.net = conv_net()
        self.source = self.net[1].weight.detach().clone()
        self.bad = False

    def forward(self, x):
        y = self.net(x)
        spoilt = self.bad and not torch.equal(self.net[1].weight, self.source)
        return y.index_fill(0, torch.tensor([1]), float("nan")) if spoilt else y


def test_a_sample_without_a_finite_answer_is_answered_by_the_source():
    net = Spoiled()
    first, second = batches(2)
    with torch.no_grad():
        source = net.eval()(second)
    watched = adapter(net=net, lr=0.1)
    watched(first)
    expected = watched.predict(second)
    net.bad = True
    answer = watched(second)
    assert torch.allclose(answer[1], source[1], atol=1e-5)
    assert torch.equal(answer[2:], expected[2:])
    assert watched.signals.refused == 1


@pytest.mark.parametrize("method", ["tent+delta", "tent+anchored+dot+sticky"])
@pytest.mark.parametrize("scale", [1e4, -1e4, 0.0])
def test_a_batch_out_of_all_proportion_is_not_learnt_from(scale, method):
    """Nothing at all, or a sensor gone mad."""
    watched, (first, second, third) = adapter(method, lr=1e-3), batches(3)
    watched(first)
    before = without_counts(watched.state_dict())
    watched(second * scale)
    assert watched.signals.skipped.startswith("out of proportion: features")
    assert_unchanged(before, without_counts(watched.state_dict()))
    watched(third)
    assert watched.signals.skipped is None


def test_parameters_that_run_away_are_rolled_back(caplog):
    stream = batches(24, seed=3)
    free, watched, untrained = adapter(guard="off", **WILD), adapter(**WILD), adapter("tema", **WILD)
    with caplog.at_level(logging.WARNING, "delta_tta"):
        wild, tame, plain = ([model(x) for x in stream] for model in (free, watched, untrained))
    assert watched.signals.rollbacks >= 1
    assert "collapse at batch" in caplog.text
    assert "rolled back to the source" in caplog.text

    def agreement(answers):
        return sum((a.argmax(1) == b.argmax(1)).float().mean() for a, b in zip(answers, plain, strict=True)) / 24

    assert agreement(wild) < 0.4 < 0.6 < agreement(tame)
    watched.reset()
    assert watched.signals.rollbacks == 0
    again = [watched(x) for x in stream]
    assert all(torch.equal(a, b) for a, b in zip(again, tame, strict=True))


def test_the_batch_at_which_it_fires_is_answered_from_the_state_gone_back_to():
    stream = batches(24, seed=3)
    source, watched = conv_net().eval(), adapter(**WILD)
    for x in stream:
        answer = watched(x)
        if watched.signals.rollbacks:
            break
    assert watched.signals.skipped == "collapse: rolled back to the source"
    with torch.no_grad():
        assert torch.allclose(answer, source(x), atol=1e-5)
    assert rate(watched) == pytest.approx(0.01 * WILD["lr"])
    assert_unchanged(parameters(adapter()), parameters(watched))


def test_the_last_good_state_comes_first_and_the_source_after():
    guard = Guard(every=1, samples=1, agreement=0.5)
    watched = adapter(guard=guard, lr=1e-4)
    stream = batches(6)
    for x in stream[:3]:
        watched(x)
    monitor = watched._hooks
    good = flatten(monitor._good)
    assert any(torch.any(value != 0) for value in good.values())
    assert monitor._roll_back() == "collapse: rolled back to the last good state"
    now = without_counts(watched.state_dict())
    assert_unchanged(good, {key: now[key] for key in good})
    assert monitor._roll_back() == "collapse: rolled back to the source"
    assert rate(watched) == pytest.approx(1e-4 * 0.01**2)


@pytest.mark.parametrize(
    ("every", "expected"), [(48, [2, 4, 8, 16, 32, 64, 112, 160]), (4, list(range(4, 121, 4))), (1, list(range(2, 40)))]
)
def test_the_two_are_compared_often_at_first_and_then_at_one_batch_in_so_many(every, expected, asked):
    watched = adapter("tent", flat_net(), guard=Guard(every=every, samples=1, agreement=0))
    stream = batches(1, size=3, shape=(6,)) * expected[-1]
    assert batches_asked(watched, stream, asked) == ([2, *expected] if every == 4 else expected)


def test_small_batches_are_compared_until_there_are_enough_samples(asked):
    watched = adapter("tent", flat_net(), guard=Guard(samples=10, agreement=0))
    assert batches_asked(watched, batches(16, size=4, shape=(6,)), asked) == [2, 3, 4, 8, 9, 10]


@pytest.mark.parametrize(("agreement", "done"), [(0.6, "collapse: rolled back to the source"), (0.4, None)])
@pytest.mark.parametrize("method", ["tent+delta", "tent+anchored+dot"])
def test_answers_that_differ_too_often_from_those_before_training_are_a_collapse(method, agreement, done, monkeypatch):
    """Half of the answers are changed."""
    watched = adapter(method, guard=Guard(agreement=agreement, samples=1), lr=1e-4)
    first, second = batches(2)
    watched(first)
    reference = Updater.logits_of_reference

    def half_right(self, x):
        answers = reference(self, x).clone()
        answers[::2] = answers[::2].roll(1, 1)
        return answers

    monkeypatch.setattr(Updater, "logits_of_reference", half_right)
    answer = watched(second)
    assert watched.signals.skipped == done
    assert watched.signals.rollbacks == (done is not None)
    if done is not None:
        with torch.no_grad():
            assert torch.allclose(answer, conv_net().eval()(second), atol=1e-5)
        assert_unchanged(parameters(adapter(method)), parameters(watched))
        assert rate(watched) == pytest.approx(0.01 * 1e-4)


@pytest.mark.parametrize("method", ["tent+delta", "tent+tema", "tent+anchored", "tent+anchored+dot+sticky"])
@pytest.mark.parametrize("scale", [0.02, 30.0])
def test_a_model_that_has_not_been_trained_agrees_with_itself(method, scale):
    """The first batches are garbage, so that averages have yet to start when the two are compared."""
    watched = adapter(method, guard=Guard(agreement=1, samples=1, alike=0))
    *garbage, x = batches(4)
    for bad in garbage:
        watched(1e5 * bad)
    assert watched.signals.refused == 3
    watched(scale * x[:, :, :1, :1].expand_as(x) + 0.2 * x)
    assert counted(watched)[1] == 8  # compared at the second batch and at this one
    assert watched.signals.rollbacks == 0


@pytest.mark.parametrize("update", ["every", "slow", "window"])
@pytest.mark.parametrize(
    "method",
    [
        "tent",
        "pl",
        "tent+delta",
        "ent-w+delta",
        "eta+delta",
        "tent+tema",
        "tent+delta+lame",
        "tent+anchored",
        "tent+anchored+dot+sticky",
    ],
)
def test_a_healthy_stream_is_left_alone_bit_for_bit(method, update):
    """The reference is asked at each batch; that must change nothing. To this net all noise is of one class."""
    settings = {"update": update, "length": 16, "lr": 1e-3}
    free = adapter(method, guard="off", **settings)
    watched = adapter(method, guard=Guard(every=1, samples=1), **settings)
    for x in batches(8):
        assert torch.equal(free(x), watched(x))
    assert counted(watched)[0] > 0
    assert (watched.signals.refused, watched.signals.rollbacks) == (0, 0)
    assert_unchanged(*(without_counts(each.state_dict()) for each in (free, watched)))


def test_a_saved_state_goes_on_with_the_guards_memory():
    stream = batches(24, seed=3)
    straight, first = adapter(**WILD), adapter(**WILD)
    expected = [straight(x) for x in stream]
    assert straight.signals.rollbacks
    for cut in (2, 5, 11):
        first = adapter(**WILD)
        for x in stream[:cut]:
            first(x)
        second = adapter(**WILD)
        second.load_state_dict(first.state_dict())
        assert all(torch.equal(second(x), y) for x, y in zip(stream[cut:], expected[cut:], strict=True))
        assert second.signals.rollbacks == straight.signals.rollbacks


def test_what_the_guard_counted_survives_a_save():
    watched, fresh, stream = adapter(**WILD), adapter(**WILD), batches(24, seed=3)
    watched(stream[0])
    watched(stream[0] * float("nan"))
    for x in stream:
        watched(x)
    assert watched.signals.refused
    assert watched.signals.rollbacks
    fresh.load_state_dict(watched.state_dict())
    assert fresh.state_dict()["guard"]["counts"] == watched.state_dict()["guard"]["counts"]
    assert (fresh.signals.refused, fresh.signals.rollbacks) == (watched.signals.refused, watched.signals.rollbacks)
    assert rate(fresh) == pytest.approx(WILD["lr"] * 0.01**watched.signals.rollbacks)


def test_a_state_saved_without_a_guard_goes_on_with_nothing_counted():
    free, watched = adapter(guard="off", lr=1e-3), adapter(lr=1e-3)
    first, second, third = batches(3)
    watched(first)
    watched(first * float("nan"))
    free(second)
    watched.load_state_dict(free.state_dict())
    assert (watched.signals.refused, watched.signals.rollbacks, counted(watched)[0]) == (0, 0, 0)
    assert torch.equal(watched(third), free(third))


@pytest.mark.parametrize("method", ["tent+delta", "tent+anchored+dot+sticky"])
@pytest.mark.parametrize("where", ["forward", "reference", "backward"])
def test_a_batch_that_fails_is_not_counted(method, where, monkeypatch):
    net, gate = conv_net(), Failing()
    net.insert(5, gate)
    watched = adapter(method, net, guard=Guard(samples=1, every=1))
    first, second, third = batches(3)
    watched(first)
    before, counts = flatten(watched.state_dict()), watched.state_dict()["guard"]["counts"]
    gate.where = where
    with monkeypatch.context() as broken:
        if where == "reference":
            broken.setattr(Updater, "logits_of_reference", gate.fail)
        with pytest.raises(ArithmeticError):
            watched(second)
    gate.where = None
    assert watched.state_dict()["guard"]["counts"] == counts
    assert_unchanged(before, flatten(watched.state_dict()))
    other = adapter(method, guard=Guard(samples=1, every=1))
    other(first)
    assert torch.equal(watched(third), other(third))
    assert watched.state_dict()["guard"]["counts"] == other.state_dict()["guard"]["counts"]


class Failing(nn.Module):
    """Fails on its way forward or back."""

    where = None

    def forward(self, x):
        if self.where == "forward":
            self.fail()
        if x.requires_grad and self.where == "backward":
            x.register_hook(self.fail)
        return x

    def fail(self, *_):
        raise ArithmeticError


def test_the_source_runs_while_a_background_update_would():
    stream = batches(24, seed=3)
    there, here = adapter(background=True, **WILD), adapter(**WILD)
    for x in stream:
        assert torch.equal(there(x), here(x))
    assert there.signals.rollbacks == here.signals.rollbacks > 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("agreement", 1.5),
        ("agreement", -0.1),
        ("samples", 0),
        ("every", 0),
        ("cooling", 2.0),
        ("cooling", 0.0),
        ("reach", 1.0),
        ("alike", 1.1),
    ],
)
def test_limits_that_make_no_sense(name, value):
    with pytest.raises(SettingError, match=f"Expected `{name}` of Guard to be"):
        Guard(**{name: value})


def test_what_is_no_guard():
    with pytest.raises(SettingError, match=r"'on', 'off' or a Guard"):
        adapter(guard="maybe")
    with pytest.raises(SettingError, match=r"'on', 'off' or a Guard"):
        adapter(guard=True)


def test_the_reference_is_asked_about_any_view():
    """What `x.imag` returns may share memory with its opposite, and cannot make new tensors."""
    watched, plain = (adapter("tent+delta", guard=Guard(every=1, samples=1)) for _ in range(2))
    for x in batches(4):
        assert torch.equal(watched(torch.complex(x, -x).conj().imag), plain(x))
    assert counted(watched)[1] == 5
