"""reset_every: back to the source after so many updates, under every schedule."""

import pytest
import torch

import delta_tta
from all_methods import make, saved_and_loaded, stream
from delta_tta import SettingError
from delta_tta.recipe import parse, used_settings
from delta_tta.settings import COMMON
from nets import batches, conv_net, same

METHODS = ["tema", "tent+delta", "eta+delta", "rdumb", "anchored+mirror+sticky", "cotta", "sar+tbr", "lame"]


def state_of(adapter):
    """What a reset brings back."""
    state = adapter.state_dict()
    return {key: state[key] for key in ("parameters", "statistics", "optimizer", "objective", "reweighting", "answer")}


def flat(state, at=""):
    if isinstance(state, dict):
        return {k: v for key, value in state.items() for k, v in flat(value, f"{at}.{key}").items()}
    return {at: torch.as_tensor(state)}


@pytest.mark.parametrize("method", METHODS)
def test_after_so_many_updates_all_begins_anew(method):
    adapter, fresh = make(method, update="every", reset_every=3), make(method, update="every")
    start = flat(state_of(fresh))
    xs = stream(7, size=10)
    for n, x in enumerate(xs, 1):
        answer = adapter(x)
        if method != "anchored+mirror+sticky":  # a filter remembers
            if n % 3 == 1:
                fresh.reset()
            assert torch.equal(answer, fresh(x))
        assert same(flat(state_of(adapter)), start) == (n % 3 == 0 or method == "lame")
        assert (adapter.signals.step, adapter.signals.samples) == (n, 10 * n)


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize(("update", "updates"), [("slow", 3), ("window", 5), ("every", 5)])
def test_what_counts_is_updates(update, updates, background):
    def adapter(every):
        return make("tent+delta", update=update, length=8, background=background, reset_every=every)

    xs = stream(5, size=5)  # slow: updates at the 2nd, the 4th and the 5th
    for every in range(1, updates + 1):
        one = adapter(every)
        for x in xs:
            one(x)
        state = one.state_dict()
        assert state["updates"] == updates % every
        assert state["step"] == 5
    never = adapter(None)
    for x in xs:
        never(x)
    assert never.state_dict()["updates"] == updates
    assert (one.state_dict()["cache"] is None) == (never.state_dict()["cache"] is None)


def test_several_updates_of_one_batch():
    adapter = make("tent", update="slow", length=4, reset_every=2)
    adapter(batches(1, size=12)[0])  # three updates; the second is undone
    once = make("tent", update="slow", length=4)
    once(batches(1, size=12)[0][8:])
    assert same(adapter.state_dict()["parameters"], once.state_dict()["parameters"])


@pytest.mark.parametrize("method", ["rdumb", "tent+delta", "anchored+mirror+sticky", "deyo"])
@pytest.mark.parametrize("before", [2, 3, 4])
def test_a_saved_state_knows_when_the_next_reset_is_due(method, before):
    xs = stream(9, size=10)
    never_stopped = make(method, update="every", reset_every=3)
    for x in xs[:before]:
        never_stopped(x)
    resumed = make(method, update="every", reset_every=3)
    resumed.load_state_dict(saved_and_loaded(never_stopped.state_dict()))
    for x in xs[before:]:
        assert torch.equal(resumed(x), never_stopped(x))
    assert resumed.state_dict()["checksum"] == never_stopped.state_dict()["checksum"]


def test_states_without_a_count_still_load():
    from delta_tta.engine.state import seal

    adapter = make("tent")
    for x in stream(2):
        adapter(x)
    state = adapter.state_dict()
    old = {key: value for key, value in state.items() if key not in ("updates", "checksum")}
    old["settings"] = {key: value for key, value in old["settings"].items() if key != "reset_every"}
    other = make("tent")
    other.load_state_dict(seal(old))
    assert same(other.state_dict()["parameters"], state["parameters"])
    with pytest.raises(delta_tta.StateError, match="counts"):
        other.load_state_dict(seal({**old, "updates": "two"}))


def test_refused_batches_do_not_count():
    adapter = make("tent+delta", reset_every=2)
    xs = stream(3, size=10)
    adapter(xs[0])
    for _ in range(3):
        adapter(torch.full_like(xs[0], float("nan")))
    assert adapter.state_dict()["updates"] == 1
    adapter(xs[1])
    assert adapter.state_dict()["updates"] == 0
    assert adapter.signals.refused == 3
    assert adapter.signals.frequencies is not None  # of the update, not of what came after


def test_the_guard_keeps_its_counts_and_its_rate_but_no_state_from_before():
    adapter = make("tent", reset_every=2)
    hooks, optimizer = adapter._hooks, adapter._updater
    hooks.rollbacks, hooks._good = 2, {"some": "state"}
    for x in stream(2, size=10):
        adapter(x)
    assert hooks.rollbacks == 2
    assert hooks._good is None
    rate = optimizer.optimizer.param_groups[0]["lr"]
    assert rate == pytest.approx(0.02 * hooks.guard.cooling**2)


def test_one_warning_of_dependent_batches_and_the_classes_stay():
    adapter = make("tent", reset_every=1)
    adapter(stream(1, size=10)[0])
    check, left = adapter._hooks._check, adapter._hooks._check._left
    adapter(stream(1, size=10)[0])
    assert adapter._hooks._check is check
    assert check._left < left
    assert adapter.state_dict()["classes"] == 5


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "1000"])
def test_it_is_checked(wrong):
    with pytest.raises(SettingError, match="reset_every"):
        delta_tta.adapt(conv_net(), "tent", reset_every=wrong)


def test_every_method_has_it():
    assert "reset_every" in COMMON
    assert used_settings("source", {"reset_every": 5}) == {"reset_every": 5}
    assert parse("rdumb+delta").objective == "rdumb"
