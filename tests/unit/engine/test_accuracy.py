"""estimate=True: it changes no answer, it is saved and reset, and it works for all batches and models."""

import pytest
import torch
from torch import nn

import delta_tta
from all_methods import assert_same_state, fitting, saved_and_loaded
from delta_tta import StateError
from delta_tta.adapt import RECOMMENDED
from delta_tta.engine.accuracy import under_batch_statistics
from delta_tta.engine.state import seal
from delta_tta.rules.accuracy import BLOCK
from nets import CLASSES, batches, conv_net, flat_net, same_state, snapshot

METHODS = ("source", "source+sticky", "bn", "tent+delta", "anchored+mirror", "tent+anchored+sticky", "lame", "cotta")
QUIET = {"guard": "off"}  # random images look blank to it


def adapted(method, net=None, estimate=True, **settings):
    return delta_tta.adapt(conv_net() if net is None else net, method, estimate=estimate, **QUIET, **settings)


def without_estimate(adapter):
    return {k: v for k, v in adapter.state_dict().items() if k not in ("accuracy", "settings", "checksum")}


@pytest.mark.parametrize("size", [1, 7, 64, 100])
@pytest.mark.parametrize("method", METHODS)
def test_it_changes_no_answer(method, size):
    plain, watched = (
        fitting(conv_net(), method, estimate=on, guard="off", views=2, mean=(0.0,) * 3, std=(1.0,) * 3)
        for on in (False, True)
    )
    for x in batches(2 + 2 * BLOCK // size if size > 1 else 70, size):
        assert torch.equal(plain(x), watched(x))
    assert_same_state(without_estimate(plain), without_estimate(watched))
    assert plain.signals.accuracy is None
    found = watched.signals.accuracy
    assert 0 <= found.low <= found.estimate <= found.high <= 1
    assert (found.source is None) == (method == "source")
    assert (watched.signals.worse_than_source is None) == (method == "source")


@pytest.mark.parametrize("size", [5, 64])
@pytest.mark.parametrize("method", ["source", "tent+delta", "anchored+mirror+sticky"])
def test_it_goes_on_from_a_state_bit_for_bit(method, size):
    stream = batches(40, size)
    straight, first = adapted(method), adapted(method)
    for x in stream[:22]:
        straight(x), first(x)
    second = adapted(method)
    second.load_state_dict(saved_and_loaded(first.state_dict()))
    assert second.signals.accuracy == first.signals.accuracy
    for x in stream[22:]:
        straight(x), second(x)
    assert same_state(straight, second)
    assert straight.signals.accuracy == second.signals.accuracy is not None


def test_predict_changes_nothing_and_reset_forgets():
    adapter = adapted("tent+delta")
    fresh = adapter.state_dict()
    for x in batches(4, 64):
        adapter(x)
    before = adapter.state_dict()
    adapter.predict(batches(1, 64, seed=1)[0])
    assert_same_state(adapter.state_dict(), before)
    assert adapter.signals.accuracy is not None
    adapter.reset()
    assert adapter.signals.accuracy is None
    assert_same_state(adapter.state_dict(), fresh)


def test_states_travel_between_adapters_with_and_without():
    watched, plain = adapted("tent+delta"), adapted("tent+delta", estimate=False)
    for x in batches(2, 64):
        watched(x), plain(x)
    other = adapted("tent+delta", estimate=False)
    other.load_state_dict(watched.state_dict())
    assert other.signals.accuracy is None
    old = {key: value for key, value in plain.state_dict().items() if key != "accuracy"}
    watched.load_state_dict(seal(old))
    assert watched.signals.accuracy is None


@pytest.mark.parametrize(
    "wrong",
    [{"scores": torch.zeros(3)}, {"counts": [1, -1, 0]}, {"names": ["a"]}, {"evidence0": torch.zeros(1)}, {"means": 0}],
)
def test_a_damaged_state_is_refused(wrong):
    adapter = adapted("tent+delta")
    adapter(batches(1, 64)[0])
    state = adapter.state_dict()
    with pytest.raises(StateError, match="damaged"):
        adapter.load_state_dict(seal({**state, "accuracy": {**state["accuracy"], **wrong}}))
    assert adapter.signals.accuracy is not None


def test_it_is_on_by_default_for_the_recommended_method_alone():
    assert delta_tta.adapt(conv_net()).settings.estimate
    assert not delta_tta.adapt(conv_net(), "tent+delta").settings.estimate
    assert not delta_tta.adapt(conv_net(), "source").settings.estimate


def test_input_without_height_and_width():
    adapter = delta_tta.adapt(flat_net(), "tent+delta", estimate=True)
    for x in batches(3, 64, (6,)):
        adapter(x)
    assert adapter.signals.accuracy is not None


def test_streams_are_told_apart_and_background_learns_the_same():
    now, later = (adapted(RECOMMENDED, background=on) for on in (False, True))
    names = ["left", "right"] * 32
    for x in batches(4, 64):
        given = x.clone()
        answer = later(given, stream=names)
        given.zero_()
        answer.zero_()
        now(x, stream=names)
    assert now.signals.accuracy == later.signals.accuracy
    assert same_state(now, later)


def test_what_is_not_finite_is_not_counted():
    adapter = delta_tta.adapt(conv_net(), "tent+delta", estimate=True, guard="on")
    adapter(batches(1, 64)[0])
    before = adapter.state_dict()["accuracy"]
    adapter(torch.full((64, 3, 8, 8), torch.nan))
    assert_same_state(adapter.state_dict()["accuracy"], before)


def test_another_sharpness_begins_anew():
    adapter = adapted("tent+delta")
    for x in batches(12, 64):
        adapter(x)
    assert adapter.state_dict()["accuracy"]["counts"][0] == 12 * 64
    adapter(5 * batches(1, 64, seed=1)[0])
    assert adapter.state_dict()["accuracy"]["counts"][0] == 64


def passes(method, count):
    net, sizes = conv_net(), []
    adapter = adapted(method, net)
    net[0].register_forward_hook(lambda _, given, out: sizes.append(len(given[0])))
    found = []
    for x in batches(count, 64):
        sizes.clear()
        adapter(x)
        found.append(len(sizes))
    return found


def test_one_pass_where_a_block_is_due():
    assert passes("tent+delta", 20)[1:] == passes_expected(20)[1:]  # the first runs are looked at on a copy


def passes_expected(count):
    due, found = 1, []
    for n in range(1, count + 1):
        found.append(1 + (n == due))
        if n == due:
            due = n + max(1, n // 4)
    return found


def test_batch_statistics_leave_the_model_alone():
    net = conv_net().eval()
    adapter = adapted("source", net)
    before, flags = snapshot(net), [(m.training, getattr(m, "track_running_stats", None)) for m in net.modules()]
    x = batches(1, 64)[0]
    found = under_batch_statistics(adapter._updater.adapted, x)
    assert [(m.training, getattr(m, "track_running_stats", None)) for m in net.modules()] == flags
    assert all(torch.equal(value, net.state_dict()[key]) for key, value in before.items())
    assert torch.allclose(found, delta_tta.adapt(conv_net(), "bn")(x), atol=1e-4)
    assert under_batch_statistics(adapter._updater.adapted, x[:8]) is None
    plain = delta_tta.adapt(nn.Sequential(nn.Flatten(), nn.Linear(12, CLASSES)), "source")
    assert under_batch_statistics(plain._updater.adapted, torch.randn(64, 3, 2, 2)) is None


def test_an_alarm_is_logged_once(caplog, monkeypatch):
    adapter = adapted("tent+delta")
    monkeypatch.setattr("delta_tta.rules.accuracy.Comparisons.worse", property(lambda self: True))
    for x in batches(5, 64):
        adapter(x)
    assert adapter.signals.worse_than_source
    assert len([one for one in caplog.records if "source itself" in one.message]) == 1
