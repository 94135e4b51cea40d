"""Methods that keep samples: when they learn, from which draws, and what a failure undoes."""

import math

import pytest
import torch

import delta_tta
from all_methods import assert_same_state, saved_and_loaded
from delta_tta import SettingError
from delta_tta.engine.draws import numbers
from delta_tta.methods.collecting import require, require_count, require_number
from nets import batches, conv_net

SCALE = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
METHODS = {"rotta": "rotta_interval", "note": "note_interval"}


def adapted(method, interval=8, **settings):
    return delta_tta.adapt(
        conv_net(), method, **{METHODS[method]: interval}, **(SCALE if method == "rotta" else {}), **settings
    )


def counts(adapter):
    memory = adapter.state_dict()["objective"]
    return int(memory["step"]), int(memory["position"])


@pytest.mark.parametrize("method", METHODS)
def test_it_learns_after_each_interval_whatever_the_batches(method):
    adapter, seen = adapted(method), 0
    for size in (3, 4, 1, 20, 8, 2):
        adapter(batches(1, size=size, seed=seen)[0])
        updates = (seen + size) // 8 - seen // 8
        seen += size
        assert counts(adapter) == (seen // 8, seen % 8)
        signals = adapter.signals
        assert (signals.loss is not None) == bool(updates)
        assert (signals.skipped is None) == bool(updates)
        assert signals.used == (1.0 if updates else None)
        assert 0 < signals.entropy < math.log(5)


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_is_answered_with_what_was_learnt_before_it(method):
    adapter, (x, y) = adapted(method, lr=0.1), batches(2, size=16)
    before = adapter.predict(x)
    assert torch.equal(adapter(x), before)
    after = adapter.predict(y)
    assert torch.equal(adapter(y), after)
    assert not torch.allclose(adapter.predict(x), before, atol=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_each_sample_and_each_update_draws_its_own_numbers(method):
    adapter = adapted(method, seed=3)
    for x in batches(2, size=12):
        adapter(x)  # three intervals
    drawn = {}
    for position in range(9):
        found = torch.rand(3, generator=adapter._updater.generator(position))
        assert torch.equal(found, torch.rand(3, generator=numbers(3, 3 * 9 + position)))
        drawn[tuple(found.tolist())] = position
    assert len(drawn) == 9


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_where_a_later_update_of_a_batch_fails_the_whole_batch_is_undone(method, warm):
    adapter, twin = (adapted(method, lr=0.1) for _ in range(2))
    x, y = batches(2, size=16)
    if warm:
        adapter(x), twin(x)
    before = saved_and_loaded(adapter.state_dict())
    own, calls = adapter._updater.train, []

    def fails_at_the_second(images):
        calls.append(len(images))
        if len(calls) == 2:
            raise ArithmeticError
        return own(images)

    adapter._updater.train = fails_at_the_second
    with pytest.raises(ArithmeticError):
        adapter(y)
    del adapter._updater.train
    assert len(calls) == 2
    assert_same_state(adapter.state_dict(), before)
    assert torch.equal(adapter(y), twin(y))
    assert torch.equal(adapter.predict(x), twin.predict(x))


@pytest.mark.parametrize("method", METHODS)
def test_what_is_not_finite_is_not_kept(method):
    adapter = adapted(method, guard="on")
    adapter(batches(1, size=3)[0])
    before = adapter.state_dict()["objective"]
    adapter(torch.full((3, 3, 8, 8), torch.inf))
    assert adapter.signals.refused == 1
    assert_same_state(adapter.state_dict()["objective"], before)


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "4", None])
def test_a_count_is_an_integer_from_1_on(value):
    with pytest.raises(SettingError, match=r"^Expected setting `size` to be an integer from 1 on, but got"):
        require_count("size", value)
    require_count("size", 1)


@pytest.mark.parametrize(("value", "fine"), [(0, True), (0.5, True), (1, True), (-0.1, False), (1.1, False)])
def test_a_number_lies_between_two_others(value, fine):
    if fine:
        require_number("share", value, 0, 1)
    else:
        with pytest.raises(SettingError, match=rf"`share` to be a number from 0 to 1, but got {value}"):
            require_number("share", value, 0, 1)


@pytest.mark.parametrize("value", [math.inf, math.nan, True, "1", -1])
def test_a_number_without_an_upper_bound_is_finite(value):
    with pytest.raises(SettingError, match="`weight` to be at least 0"):
        require_number("weight", value, 0)
    require_number("weight", 1e30, 0)


def test_other_conditions_are_told_in_their_own_words():
    require("kind", "a", True, "a letter")
    with pytest.raises(SettingError, match=r"^Expected setting `kind` to be a letter, but got '7'\.$"):
        require("kind", "7", False, "a letter")
