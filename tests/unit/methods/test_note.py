"""NOTE: the reservoir, what an update changes, the settings."""

import pytest
import torch
from torch import Generator

import delta_tta
from delta_tta import ModelError, SettingError
from delta_tta.methods.note import NoteOptions, Reservoir
from nets import batches, conv_net, flat_net, forget_statistics, group_norm


def offered(labels, capacity, classes=3, seed=0):
    memory, generator = Reservoir(classes, capacity), Generator().manual_seed(seed)
    for number, label in enumerate(labels):
        memory.add(label, number, generator)
    return memory


def test_a_memory_that_is_not_full_keeps_everything():
    memory = offered([0, 1, 0, 2], 4)
    assert memory.rooms == [[0, 2], [1], [3]]
    assert memory.counts == [2, 1, 1]


def test_a_class_that_is_not_among_the_largest_takes_the_place_of_one_that_is():
    memory = offered([0] * 6 + [1] * 3, 6)
    assert [len(room) for room in memory.rooms] == [3, 3, 0]
    assert memory.rooms[1] == [6, 7, 8]


def test_a_stream_in_order_of_classes_ends_in_balance():
    memory = offered([k for k in range(3) for _ in range(500)], 30)
    assert [len(room) for room in memory.rooms] == [10, 10, 10]
    assert memory.counts == [500, 500, 500]


def test_within_a_class_all_times_are_kept_alike():
    kept = torch.zeros(40)
    for seed in range(1500):
        kept[offered([0] * 40, 8, seed=seed).rooms[0]] += 1
    assert torch.allclose(kept / 1500, torch.full((40,), 0.2), atol=0.06)


def test_the_memory_does_not_depend_on_how_the_stream_is_cut():
    states = []
    for size in (3, 6):
        adapter = delta_tta.adapt(conv_net(), "note", note_interval=6, note_capacity=5)
        for x in torch.cat(batches(4, size=12)).split(size):
            adapter(x)
        states.append(adapter.state_dict()["objective"])
    assert torch.equal(states[0]["images"], states[1]["images"])
    assert states[0]["counts"].tolist() == states[1]["counts"].tolist()


def test_an_update_moves_the_statistics_by_the_momentum_and_unbiased():
    net = flat_net().double()
    mean, var = net[1].running_mean.clone(), net[1].running_var.clone()
    x = batches(1, size=8, shape=(6,), dtype=torch.float64)[0]
    features = net[0](x).detach()
    adapter = delta_tta.adapt(net, "note", note_interval=8, note_momentum=0.25)
    adapter(x)
    assert torch.allclose(net[1].mean, 0.75 * mean + 0.25 * features.mean(0), atol=1e-12)
    wanted = 0.75 * var + 0.25 * features.var(0, correction=1) + 1e-5
    assert torch.allclose(net[1].std ** 2, wanted, atol=1e-12)


def test_the_loss_is_the_mean_over_samples_and_classes():
    net = flat_net()
    x = batches(1, size=8, shape=(6,))[0]
    features = net[0](x)
    normal = (features - features.mean(0)) / (features.var(0, correction=1) + 1e-5).sqrt()
    logits = net[3]((normal * net[1].weight + net[1].bias).relu())
    p = (logits.detach() / 2).softmax(1)
    adapter = delta_tta.adapt(net, "note", note_interval=8, note_temperature=2.0)
    adapter(x)
    assert adapter.signals.loss == pytest.approx(float(-(p * (p + 1e-6).log()).mean()), rel=1e-4)


def test_answers_do_not_depend_on_the_batch():
    x = batches(1)[0]
    adapter = delta_tta.adapt(conv_net(), "note", note_interval=12)
    adapter(x)
    whole = adapter.predict(x)
    assert torch.allclose(whole, torch.cat([adapter.predict(one[None]) for one in x]), atol=1e-5)


def test_a_layer_without_statistics_keeps_none():
    adapter = delta_tta.adapt(forget_statistics(conv_net()), "note", note_interval=4)
    for x in batches(3):
        adapter(x)
    assert adapter.state_dict()["statistics"] == {}
    assert adapter.signals.loss > 0


def test_what_it_cannot_adapt():
    with pytest.raises(ModelError, match="batch norm layers, and the model has none"):
        delta_tta.adapt(conv_net(group_norm), "note")


@pytest.mark.parametrize(
    ("name", "value"), [("note_capacity", 0), ("note_interval", True), ("note_momentum", 2), ("note_temperature", 0)]
)
def test_settings_are_checked(name, value):
    with pytest.raises(SettingError, match=name):
        delta_tta.adapt(conv_net(), "note", **{name: value})


def test_the_defaults_are_the_paper_s():
    for preset in (None, *delta_tta.settings.PRESETS):
        settings = delta_tta.adapt(conv_net(), "note", preset).settings
        assert (settings.lr, settings.optimizer) == (1e-4, "adam")
    assert NoteOptions() == NoteOptions(
        iabn_k=4.0, note_capacity=64, note_interval=64, note_momentum=0.01, note_temperature=1.0
    )
