"""RoTTA: the memory, teacher and student, what happens between updates and where one fails."""

import math

import pytest
import torch
from torch import nn

import delta_tta
from all_methods import assert_same_state, saved_and_loaded
from delta_tta import InputError, ModelError, SettingError
from delta_tta.methods import rotta
from delta_tta.methods.rotta import Memory, RottaOptions
from nets import batches, conv_net, group_norm

SCALE = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


def adapted(net=None, interval=8, **settings):
    return delta_tta.adapt(net or conv_net(), "rotta", rotta_interval=interval, **{**SCALE, "lr": 0.02, **settings})


def numbers(memory):
    return [[kept.number for kept in room] for room in memory.rooms]


def filled(classes, capacity, samples, **options):
    memory = Memory(classes, RottaOptions(rotta_capacity=capacity, **options))
    for number, (label, uncertainty) in enumerate(samples):
        memory.add(label, uncertainty, number)
    return memory


def test_the_score_grows_with_age_and_uncertainty():
    memory = filled(4, 16, [(0, 0.5)] * 3)
    scores = [memory.score(kept) for kept in memory.rooms[0]]
    expected = [1 / (1 + math.exp(-age / 16)) + 0.5 / math.log(4) for age in (3, 2, 1)]
    assert scores == pytest.approx(expected)


def test_a_class_holds_its_share_and_the_worst_of_it_leaves():
    memory = filled(2, 4, [(0, 0.6), (0, 0.1), (0, 0.2)])
    assert numbers(memory) == [[1, 2], []]
    memory.add(0, 0.69, 3)  # surer and younger ones stay
    assert numbers(memory) == [[1, 2], []]


def test_a_full_memory_makes_room_in_its_largest_class():
    # 3 classes share 4 places: 4/3, so a class may take 2
    memory = filled(3, 4, [(0, 0.1), (0, 0.5), (1, 0.9), (1, 0.05)])
    assert numbers(memory) == [[0, 1], [2, 3], []]
    memory.add(2, 0.3, 4)
    assert numbers(memory) == [[0, 1], [3], [4]]


def test_by_age_alone_the_oldest_leaves():
    memory = filled(2, 4, [(0, 0.6), (0, 0.1), (0, 0.69), (0, 0.69)], rotta_lambda_u=0.0)
    assert numbers(memory) == [[2, 3], []]


def test_by_uncertainty_alone_age_counts_for_nothing():
    memory = filled(2, 4, [(0, 0.1), (0, 0.6), *[(0, 0.3)] * 9], rotta_lambda_t=0.0)
    assert numbers(memory) == [[0, 2], []]


def test_between_updates_answers_stay_and_samples_are_kept():
    adapter, probe = adapted(), batches(1, seed=4)[0]
    before = adapter.predict(probe)
    for i, x in enumerate(batches(3, size=3)):
        adapter(x)
        if i < 2:
            assert torch.equal(adapter.predict(probe), before)
            assert adapter.signals.skipped.reason.name == "COLLECTING"
            assert adapter.signals.skipped == f"collecting samples: {3 * (i + 1)} of 8"
    assert adapter.signals.skipped is None
    assert adapter.signals.loss > 0
    assert not torch.equal(adapter.predict(probe), before)
    memory = adapter.state_dict()["objective"]
    assert (memory["step"], memory["position"]) == (1, 1)
    assert len(memory["images"]) == len(memory["labels"]) == len(memory["age"]) == len(memory["uncertainty"])


def test_the_memory_does_not_depend_on_how_the_stream_is_cut():
    states = []
    for size in (2, 4, 8):
        adapter = adapted(lr=0.01)
        for x in torch.cat(batches(3, size=16)).split(size):
            adapter(x)
        states.append(adapter.state_dict()["objective"])
    for state in states[1:]:
        assert state["labels"].tolist() == states[0]["labels"].tolist()
        assert torch.equal(state["images"], states[0]["images"])
        assert torch.allclose(state["student_mean.1"], states[0]["student_mean.1"], atol=1e-5)


def test_the_teacher_answers_and_a_plain_model_keeps_it():
    x, net = batches(1, seed=3)[0], conv_net()
    adapter = adapted(net, lr=0.1, rotta_nu=0.0)
    for batch in batches(4):
        adapter(batch)
    state = adapter.state_dict()
    assert not torch.allclose(state["parameters"]["1.weight"], state["objective"]["teacher.1.weight"], atol=0.05)
    expected = adapter.predict(x)
    plain = adapter.unload(keep=True)
    assert torch.allclose(plain(x), expected, atol=1e-5)
    assert torch.equal(plain[1].weight, conv_net()[1].weight)  # ν = 0: the teacher moves only its statistics
    assert not torch.allclose(plain[1].running_mean, conv_net()[1].running_mean, atol=1e-2)


def test_one_draw_augments_the_whole_memory(monkeypatch):
    calls = []
    own = rotta.views

    def noted(x, generator, together):
        calls.append((len(x), generator.initial_seed(), together))
        return own(x, generator, together=together)

    monkeypatch.setattr(rotta, "views", noted)
    adapter = adapted(seed=3)
    for x in batches(2, size=8):
        adapter(x)
    assert [together for *_, together in calls] == [True, True]
    assert calls[0][1] != calls[1][1]
    assert calls[1][0] == len(adapter.state_dict()["objective"]["images"])


def failing_at(count):
    """A network whose run number `count` with gradients fails."""
    runs = []

    class Fails(nn.Module):
        def forward(self, x):
            if torch.is_grad_enabled():
                runs.append(1)
                if len(runs) == count:
                    raise ArithmeticError("a layer of the user's model failed")
            return x

    net = conv_net()
    net.insert(5, Fails())
    return net


def test_where_the_second_update_of_a_batch_fails_the_first_is_undone():
    adapter = adapted(failing_at(4), interval=4)
    xs = batches(3, size=8)
    adapter(xs[0])
    before = saved_and_loaded(adapter.state_dict())
    with pytest.raises(ArithmeticError):
        adapter(xs[1])
    assert_same_state(adapter.state_dict(), before)
    twin = adapted(failing_at(0), interval=4)
    twin(xs[0])
    assert torch.equal(adapter(xs[2]), twin(xs[2]))
    assert torch.equal(adapter.predict(xs[0]), twin.predict(xs[0]))


def test_an_update_that_is_not_finite_is_left_out_and_the_stream_goes_on(monkeypatch):
    monkeypatch.setattr(rotta, "views", lambda x, generator, together: x * float("nan"))
    adapter, (x, y) = adapted(), batches(2, size=8)
    before = adapter.state_dict()
    adapter(x)
    after = adapter.state_dict()
    assert adapter.signals.skipped == "not finite: loss, gradient, statistics"
    assert_same_state(after["parameters"], before["parameters"])
    assert_same_state(after["statistics"], before["statistics"])
    assert not any(key.startswith(("teacher.", "student_")) for key in after["objective"])
    monkeypatch.undo()
    adapter(y)
    assert adapter.signals.skipped is None


def test_what_it_cannot_adapt():
    with pytest.raises(ModelError, match="batch norm layers, and the model has none"):
        adapted(conv_net(group_norm))
    with pytest.raises(ModelError, match="weight and bias of norm layers"):
        adapted(conv_net(lambda c: nn.BatchNorm2d(c, affine=False)))
    with pytest.raises(InputError, match="RGB images"):
        adapted()(torch.randn(2, 4, 8, 8))


@pytest.mark.parametrize(
    ("name", "value"),
    [("rotta_capacity", 0), ("rotta_interval", 2.5), ("rotta_nu", 1.5), ("rotta_lambda_t", -1), ("rotta_nu", "a")],
)
def test_settings_are_checked(name, value):
    with pytest.raises(SettingError, match=name):
        delta_tta.adapt(conv_net(), "rotta", **{**SCALE, name: value})


def test_the_defaults_are_the_paper_s():
    for preset in (None, *delta_tta.settings.PRESETS):
        settings = delta_tta.adapt(conv_net(), "rotta", preset, **SCALE).settings
        assert (settings.lr, settings.optimizer, settings.alpha) == (1e-3, "adam", 0.95)
    assert RottaOptions() == RottaOptions(
        rotta_capacity=64, rotta_interval=64, rotta_nu=0.001, rotta_lambda_t=1.0, rotta_lambda_u=1.0
    )


def test_more_classes_than_places():
    memory = filled(8, 4, [(k % 8, 0.1) for k in range(16)])
    assert sum(map(len, memory.rooms)) == 4
    assert max(map(len, memory.rooms)) == 1
