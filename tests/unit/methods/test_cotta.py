"""CoTTA: teacher, gate, restore."""

import copy

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta.engine.state import seal
from delta_tta.methods import cotta
from nets import batches, conv_net

SCALE = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "views": 4}


def values(model):
    return {name.replace("source.", ""): p.detach().clone() for name, p in model.named_parameters()}


def test_the_teacher_follows_the_student_slowly():
    net = conv_net().double()
    source = values(net)
    adapter = delta_tta.adapt(net, "cotta", optimizer="sgd", lr=0.1, restore=0.0, gate=0.0, **SCALE)
    teacher = copy.deepcopy(source)
    for x in batches(3, dtype=torch.float64):
        adapter(x)
        student = values(net)
        teacher = {name: 0.999 * teacher[name] + 0.001 * student[name] for name in teacher}
    memory = adapter.state_dict()["objective"]
    for name, wanted in teacher.items():
        assert torch.allclose(memory[f"teacher.{name}"], wanted, atol=1e-12)
        assert not torch.equal(values(net)[name], source[name])


def test_the_loss_is_the_cross_entropy_of_teacher_and_student():
    x = batches(1)[0]
    for symmetric in (False, True):
        adapter = delta_tta.adapt(conv_net(), "cotta", gate=0.0, symmetric=symmetric, **SCALE)
        p = adapter(x).softmax(1)  # at first teacher and student are one
        entropy = float(-(p * p.log()).sum(1).mean())
        assert adapter.signals.loss == pytest.approx(entropy, rel=1e-5)


@pytest.mark.parametrize(("gate", "passes"), [(0.0, 1), (1.0, 4)])
def test_views_are_made_only_where_the_source_is_unsure(gate, passes):
    net = conv_net()
    calls = []
    net.register_forward_hook(lambda *_: calls.append(1))
    adapter = delta_tta.adapt(net, "cotta", gate=gate, **SCALE)
    adapter(batches(1)[0])
    assert len(calls) == 1 + passes + 1  # the source, the teacher, the student


def test_the_gate_depends_on_the_number_of_classes():
    updater = delta_tta.adapt(conv_net(), "cotta", **SCALE)._updater
    assert [updater._gate(classes) for classes in (2, 10, 11, 100, 1000)] == [0.92, 0.92, 0.72, 0.72, 0.1]


def test_the_share_of_weights_that_fall_back_is_the_restore_rate():
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 500), nn.BatchNorm1d(500), nn.ReLU(), nn.Linear(500, 5))
    source = values(net)
    adapter = delta_tta.adapt(net, "cotta", optimizer="adam", lr=0.01, restore=0.3, gate=0.0, **SCALE)
    adapter(batches(1)[0])
    back = torch.cat([(p == source[name]).flatten() for name, p in values(net).items() if p.dim() == 2])
    assert float(back.double().mean()) == pytest.approx(0.3, abs=0.01)


def test_there_is_no_second_copy_of_the_modules():
    net = conv_net()
    adapter = delta_tta.adapt(net, "cotta", **SCALE)
    adapter(batches(1)[0])
    assert sum(isinstance(m, nn.Conv2d) for m in adapter.modules()) == 2
    assert isinstance(adapter._updater, cotta.Cotta)


def test_frozen_and_integer_parameters_are_not_trained():
    net = conv_net()
    net[0].weight.requires_grad_(False)
    before = net[0].weight.detach().clone()
    adapter = delta_tta.adapt(net, "cotta", **SCALE)
    adapter(batches(1)[0])
    assert torch.equal(net[0].weight, before)
    assert not adapter.unload()[0].weight.requires_grad


def test_a_damaged_teacher_is_refused():
    adapter = delta_tta.adapt(conv_net(), "cotta", **SCALE)
    adapter(batches(1)[0])
    state = adapter.state_dict()
    del state["objective"]["step"]
    with pytest.raises(delta_tta.StateError, match="class frequencies make no sense"):
        adapter.load_state_dict(seal(state))


def test_the_seed_reaches_the_draws():
    first, again, other = (delta_tta.adapt(conv_net(), "cotta", gate=1.0, seed=seed, **SCALE) for seed in (1, 1, 2))
    x = batches(1)[0]
    answer = first(x)
    assert torch.equal(answer, again(x))
    assert not torch.equal(answer, other(x))
