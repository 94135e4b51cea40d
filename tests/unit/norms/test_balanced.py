"""Balanced batch norm: its step in closed form, the order of answer and update, and which labels it takes."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import delta_tta
from delta_tta import InputError, SettingError
from delta_tta.norms.balanced import BbnOptions, balanced, moved
from delta_tta.norms.labels import Labels
from nets import CLASSES, batches, bright, channel_net, conv_net, same_state


def labels_of(labels, classes):
    return Labels.of(nn.functional.one_hot(torch.tensor(labels), classes).float())


def step(x, labels, means, variances, eta, gamma):
    """One step of features (B, 1) without space."""
    x = torch.tensor(x).unsqueeze(1)
    found = moved(
        torch.tensor(means).unsqueeze(1),
        torch.tensor(variances).unsqueeze(1),
        x,
        torch.zeros_like(x),
        labels_of(labels, len(means)),
        eta,
        gamma,
    )
    return tuple(t.flatten().tolist() for t in found)


def test_labels_are_grouped():
    labels = labels_of([4, 1, 4, 4], 6)
    assert labels.classes == 6
    assert labels.present.tolist() == [1, 4]
    assert labels.group.tolist() == [1, 0, 1, 1]
    assert labels.counts.tolist() == [1, 3]


def test_only_the_classes_that_occur_move():
    means, variances = step([3.0, 5.0], [1, 1], [0.0, 1.0, 2.0], [1.0, 1.0, 4.0], 0.1, 0.0)
    # Δ = 0.1 (2 + 4); σ² + 0.1 (4 + 16 − 2 σ²) − Δ²
    assert means == pytest.approx([0.0, 1.6, 2.0])
    assert variances == pytest.approx([1.0, 1 + 0.1 * (20 - 2) - 0.36, 4.0])


def test_a_class_with_many_samples_takes_their_own_statistics():
    means, variances = step([3.0, 5.0, 7.0, 5.0], [0, 0, 0, 0], [0.0, 1.0], [1.0, 1.0], 0.5, 0.0)
    assert means == pytest.approx([5.0, 1.0])  # a = 1/4, not 1/2
    assert variances == pytest.approx([2.0, 1.0])


def test_all_classes_move_alike_with_a_gamma_of_1():
    means, variances = step([3.0, 5.0], [1, 0], [0.0, 1.0, 2.0], [1.0, 1.0, 4.0], 0.1, 1.0)
    assert means == pytest.approx([0.35, 1.35, 2.35])  # the mean of 0.1 · 2 and 0.1 · 5
    spread = (0.1 * 4 - 0.04 + 0.1 * 25 - 0.25) / 2
    assert variances == pytest.approx([1 + spread - 0.1, 1 + spread - 0.1, 4 + spread - 0.4])


def test_all_classes_count_the_same():
    mean, var = balanced(torch.tensor([[0.0], [4.0]]), torch.tensor([[1.0], [3.0]]))
    assert mean.tolist() == [2.0]
    assert var.tolist() == [2 + 8]  # between the classes the unbiased variance


def test_rates_follow_the_number_of_classes():
    rates = BbnOptions().rates
    assert [rates(k) for k in (2, 10, 100, 1000, 5000)] == [
        (0.01, 0.0),
        (0.01, 0.0),
        (0.05, 0.1),
        (0.5, 0.5),
        (1.0, 0.5),
    ]
    assert BbnOptions(bbn_eta=0.2, bbn_gamma=0.3).rates(10) == (0.2, 0.3)


@pytest.mark.parametrize("wrong", [{"bbn_eta": 1.5}, {"bbn_gamma": -0.1}])
def test_settings_are_checked(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        delta_tta.adapt(conv_net(), "bbn", **wrong)


def test_the_answer_does_not_know_the_batch():
    first, second = batches(2)
    source = conv_net().eval()
    adapter = delta_tta.adapt(conv_net(), "bbn", bbn_eta=0.5)
    assert torch.allclose(adapter(first), source(first), atol=1e-5)
    assert not torch.allclose(adapter(second), source(second), atol=1e-2)


def test_the_labels_are_those_of_the_answer():
    """Each class keeps the mean of its own images, however the stream is mixed."""
    adapter = delta_tta.adapt(channel_net(), "bbn", bbn_eta=0.5)
    for seed in range(6):
        adapter(bright([0] * 12 + [3] * 2, seed=seed))
    means = adapter.state_dict()["statistics"]["0"]["mean"]
    assert means.shape == (10, 10)
    assert means[0].argmax() == 0
    assert means[3].argmax() == 3
    assert torch.allclose(means[5], torch.full((10,), 0.1))  # never seen


def test_one_class_is_refused():
    net = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 1))
    with pytest.raises(InputError, match="at least two classes"):
        delta_tta.adapt(net, "bbn")(torch.randn(4, 6))


@pytest.mark.parametrize("method", ["tent+bbn", "tent+unmix-tns"])
def test_gradient_checkpoints_change_nothing(method):
    class Checkpointed(nn.Module):
        def __init__(self, again):
            super().__init__()
            self.again = again
            net = conv_net()
            self.first, self.rest = net[0], net[1:]

        def forward(self, x):
            h = self.first(x)
            return checkpoint(self.rest, h, use_reentrant=False) if self.again else self.rest(h)

    adapters = []
    for again in (False, True):
        adapter = delta_tta.adapt(Checkpointed(again), method, lr=0.02)
        for x in batches(4):
            adapter(x)
        adapters.append(adapter)
    assert adapters[0].signals.loss == adapters[1].signals.loss
    assert same_state(*adapters)


def test_a_layer_that_runs_twice_moves_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, CLASSES)

        def forward(self, x):
            self.norm(x)
            return self.head(self.norm(x))

    class Once(Twice):
        def forward(self, x):
            return self.head(self.norm(x))

    x = batches(1, shape=(4,))[0]
    twice, once, again = Twice(), Once(), Once()
    for other in (once, again):
        other.load_state_dict(twice.state_dict())
    adapters = [delta_tta.adapt(net, "bbn", bbn_eta=0.01) for net in (twice, once, again)]
    adapters[0](x)
    adapters[1](x)
    labels = adapters[2](x).argmax(1)
    assert not same_state(adapters[0], adapters[1])
    norm = adapters[2]._updater.adapted.norms["norm"]
    norm._phase.labels = Labels.of(nn.functional.one_hot(labels, CLASSES).float())
    norm.observe(x)
    norm.commit()
    ours, theirs = (one.state_dict()["statistics"]["norm"] for one in (adapters[0], adapters[2]))
    assert torch.allclose(ours["mean"], theirs["mean"], atol=1e-6)
    assert torch.allclose(ours["std"], theirs["std"], atol=1e-6)
