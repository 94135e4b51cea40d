"""The guard: bad batches are answered and never learnt from; a collapse is undone; health is left alone."""

import dataclasses
import logging

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta import Guard, SettingError
from delta_tta.watch import SOON
from nets import batches, conv_net, flatten, without_counts

WILD = {"lr": 5.0, "optimizer": "sgd", "init": "first", "pace": "even"}


def adapter(method="tent+delta", net=None, **settings):
    return delta_tta.adapt(net or conv_net(), method, **settings)


def assert_unchanged(before, after):
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("method", ["tema", "tent", "tent+delta", "ent-w+delta", "lame", "tent+delta+lame"])
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


@pytest.mark.parametrize("scale", [1e4, -1e4, 0.0])
def test_a_batch_out_of_all_proportion_is_not_learnt_from(scale):
    """Nothing at all, or a sensor gone mad."""
    watched, (first, second, third) = adapter("tent+delta", lr=1e-3), batches(3)
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
    assert watched._learner.optimizer.param_groups[0]["lr"] == pytest.approx(0.01 * WILD["lr"])
    assert all(
        torch.equal(p, watched._learner.subject.source[n]) for n, p in watched._learner.subject.parameters.items()
    )


def flatten_parameters(watched):
    return torch.cat([p.detach().flatten() for p in watched._learner.subject.parameters.values()])


def test_the_last_good_state_comes_first_and_the_source_after():
    guard = Guard(every=1, samples=1, agreement=0.5)
    watched = adapter(guard=guard, lr=1e-4)
    stream = batches(6)
    for x in stream[:3]:
        watched(x)
    watch = watched._watch
    good = flatten(watch._good)
    assert any(torch.any(value != 0) for value in good.values())
    watch._batches += 1  # the batch at which it collapses
    assert watch.roll_back() == "collapse: rolled back to the last good state"
    now = without_counts(watched.state_dict())
    assert_unchanged(good, {key: now[key] for key in good})
    watch._batches += 2
    assert watch.roll_back() == "collapse: rolled back to the source"
    assert watched._learner.optimizer.param_groups[0]["lr"] == pytest.approx(1e-4 * 0.01**2)


def test_a_state_from_shortly_before_the_collapse_may_have_been_sliding_already():
    watched = adapter(guard=Guard(every=4, samples=1, agreement=0.0, hasty_agreement=0.0, drift=1e-9), lr=1e-4)
    for x in batches(3):
        watched(x)
    watch = watched._watch
    assert watch._good is not None
    watch._batches += 2
    assert watch.roll_back() == "collapse: rolled back to the source"
    assert all(norm.mean is None for norm in watched._learner.subject.norms.values())
    assert torch.equal(*(flatten_parameters(each) for each in (watched, adapter())))


def test_parameters_that_move_fast_are_looked_at_again_at_once():
    looks = {}
    for drift in (1e-9, 1e9):
        guard = Guard(every=4, samples=1, agreement=0.0, hasty_agreement=0.0, drift=drift)
        watched, asked = adapter(guard=guard, lr=1e-4), []
        ask = watched._watch._ask
        watched._watch._ask = lambda *a, ask=ask, asked=asked, w=watched: (asked.append(w._watch._batches), ask(*a))
        for x in batches(10):
            watched(x)
        looks[drift] = asked
    assert looks[1e-9] == list(range(2, 11))
    assert looks[1e9] == [6, 10]


@pytest.mark.parametrize(("since", "least"), [(1, 0.01), (4, 0.02), (16, 0.04), (64, 0.08)])
def test_how_far_parameters_may_move_unseen_grows_with_the_root_of_the_batches(since, least):
    watch = adapter(guard=Guard(every=100, drift=0.1))._watch
    for moved in (0.99 * least, 1.01 * least):
        watch._batches, watch._judged_at, watch._next, watch._drift = 1024, 1024 - since, 2000, 0.5
        watch._measured_drift = lambda moved=moved: 0.5 + moved
        assert watch._due() == (moved > least)


@pytest.mark.parametrize(
    ("at", "drift", "since", "due"),
    [
        (8, 0.025, 1, True),  # 0.06 √(8/48) = 0.0245
        (8, 0.024, 1, False),
        (64, 0.07, 8, True),  # 0.0693
        (64, 0.07, 7, False),  # looked at a moment ago
        (128, 0.0985, 16, True),  # 0.098
        (136, 0.2, 17, False),  # no longer the start
    ],
)
def test_a_model_in_haste_is_looked_at_again_and_again(at, drift, since, due):
    watch = adapter(guard=Guard())._watch
    watch._batches, watch._judged_at, watch._next, watch._drift = at, at - since, 1000, drift
    watch._measured_drift = lambda: drift
    assert watch._due() == due


@pytest.mark.parametrize(
    ("learnt", "drift", "agreement", "done"),
    [
        (1, 1e-9, 0.4, "haste: rolled back to the parameters of the source"),
        (2, 1e-9, 0.4, "haste: rolled back to the parameters of the source"),
        (1, 1e-9, 0.6, "collapse: rolled back to the parameters of the source"),  # learnt from once, before they moved
        (2, 1e9, 0.6, "collapse: rolled back to the source"),
        (1, 1e9, 0.4, None),
        (2, 1e9, 0.4, None),
    ],
)
def test_a_model_in_haste_must_agree_more_and_good_statistics_are_kept(learnt, drift, agreement, done):
    """Half of the answers are changed: too many for a model in haste, or for the agreement that is asked for."""
    guard = Guard(agreement=agreement, hasty_agreement=0.9, samples=1, every=100, drift=drift)
    watched = adapter("tent+delta", guard=guard, lr=1e-4, update="every")
    *first, second = batches(learnt + 1)
    for x in first:
        watched(x)
    means = [norm.mean.clone() for norm in watched._learner.subject.norms.values()]
    frequencies, twin = watched.signals.frequencies, watched._learner.logits_of_twin
    expected = twin(second)

    def half_right(x):
        answers = twin(x).clone()
        answers[::2] = answers[::2].roll(1, 1)
        return answers

    watched._learner.logits_of_twin = half_right
    watched._watch._next = learnt + 1  # asked now, in haste or not
    answer = watched(second)
    assert watched._watch._judged_at == learnt + 1
    assert watched.signals.skipped == done
    assert watched.signals.rollbacks == (done is not None)
    if done is not None:
        assert torch.equal(*(flatten_parameters(each) for each in (watched, adapter())))
        assert watched._learner.optimizer.param_groups[0]["lr"] == pytest.approx(0.01 * 1e-4)
    if done is not None and done.endswith("parameters of the source"):
        assert torch.equal(answer, expected)
        assert torch.equal(watched.signals.frequencies, frequencies)
        norms = watched._learner.subject.norms.values()
        assert all(torch.equal(norm.mean, mean) for norm, mean in zip(norms, means, strict=True))


@pytest.mark.parametrize(("batches_so_far", "rollbacks"), [(10, 1), (SOON, 1), (9 * SOON, 0)])
def test_parameters_three_times_their_size_are_a_collapse_soon_and_not_after_ages(batches_so_far, rollbacks):
    first, second = batches(2)
    watched = adapter(guard=Guard(every=1, samples=1, agreement=0.0, hasty_agreement=0.0))  # the twin always agrees
    watched(first)
    watched._watch._batches = watched._watch._next = batches_so_far
    with torch.no_grad():
        for p in watched._learner.subject.parameters.values():
            p.mul_(3)
    watched(second)
    assert watched.signals.rollbacks == rollbacks


@pytest.mark.parametrize("update", ["every", "slow", "window"])
@pytest.mark.parametrize(
    "method", ["tent", "pl", "tent+delta", "ent-w+delta", "eta+delta", "tent+tema", "tent+delta+lame"]
)
def test_a_healthy_stream_is_left_alone_bit_for_bit(method, update):
    """The twin is asked at each batch here; that must change nothing either. To this net all noise is of one class."""
    settings = {"update": update, "length": 16, "lr": 1e-3}
    free = adapter(method, guard="off", **settings)
    watched = adapter(method, guard=Guard(every=1, samples=1, coherence=1), **settings)
    for x in batches(8):
        assert torch.equal(free(x), watched(x))
    assert watched._watch._batches > 0
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


def test_a_state_saved_without_a_guard_is_not_taken_for_haste():
    """Its parameters have come far, but over thousands of batches."""
    free, watched = adapter(guard="off", lr=1e-3, update="every"), adapter(lr=1e-3, update="every")
    first, second = batches(2)
    free(first)
    with torch.no_grad():
        for p in free._learner.subject.parameters.values():
            p.mul_(1.5)
    free._signals = dataclasses.replace(free.signals, step=5000)
    watched.load_state_dict(free.state_dict())
    assert torch.equal(watched(second), free(second))
    assert watched.signals.rollbacks == 0
    assert watched._watch._batches == 5001
    watched.load_state_dict(free.state_dict())
    watched._watch._batches += 1
    assert watched._watch.roll_back() == "collapse: rolled back to the source"  # nobody has found its statistics good


def test_one_sample_has_no_statistics_of_its_own():
    """Batch statistics of a single sample answer nonsense; the guard answers as the source does."""
    x = batches(1)[0][:1]
    source = conv_net().eval()
    for method in ("bn", "tent"):
        watched, free = (adapter(method, update="every", guard=guard) for guard in ("on", "off"))
        with torch.no_grad():
            assert torch.allclose(watched(x), source(x), atol=1e-5)
            assert torch.allclose(watched.predict(x), source(x), atol=1e-5)
            assert not torch.allclose(free(x), source(x), atol=0.1)
        assert watched.signals.skipped == "a single sample has no statistics of its own"


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
        ("hasty_agreement", -0.1),
        ("samples", 0),
        ("every", 0),
        ("drift", 0.0),
        ("cooling", 2.0),
        ("reach", 1.0),
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


def test_the_twin_is_asked_about_any_view():
    """What `x.imag` returns may share memory with its opposite, and cannot make new tensors."""
    watched, plain = (adapter("tent+delta", guard=Guard(every=1, samples=1)) for _ in range(2))
    for x in batches(4):
        assert torch.equal(watched(torch.complex(x, -x).conj().imag), plain(x))
    assert watched._watch._judged_at == 4
