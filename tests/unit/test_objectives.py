"""Objectives and DOT against closed forms; the registry."""

import math

import pytest
import torch

import delta_tta
from all_methods import fitting
from delta_tta import SettingError
from delta_tta.objectives import EntropyWeighted, Eta, PseudoLabel, Tent
from delta_tta.prediction import Prediction
from delta_tta.registry import COMPONENTS, component
from delta_tta.settings import Settings
from nets import batches, conv_net
from similarity import entropy, logits_like_a_model, plain_eta


def prediction_of(*rows):
    return Prediction(torch.tensor(rows, dtype=torch.float64).log())


def test_uniform_and_sure_predictions():
    p = prediction_of([0.25] * 4, [1 - 3e-12, 1e-12, 1e-12, 1e-12])
    each, selected = Tent(Settings()).loss(p, {})
    assert selected is None
    assert torch.allclose(each, torch.tensor([math.log(4), 0.0], dtype=torch.float64), atol=1e-9)


def test_pl_includes_the_threshold_itself():
    p = Prediction(torch.zeros(1, 4, dtype=torch.float64))  # softmax of zeros is exactly 1/4
    assert PseudoLabel(Settings(threshold=0.25)).loss(p, {})[1].tolist() == [True]
    assert PseudoLabel(Settings(threshold=0.2500001)).loss(p, {})[1].tolist() == [False]
    each, selected = PseudoLabel(Settings()).loss(prediction_of([0.5, 0.3, 0.2], [0.39, 0.31, 0.3]), {})
    assert selected.tolist() == [True, False]
    assert float(each[0]) == pytest.approx(math.log(2))


def test_ent_w_margin_and_weight():
    rows = [0.9, 0.05, 0.05], [0.4, 0.3, 0.3]
    h = [-sum(q * math.log(q) for q in row) for row in rows]
    tau = 0.5 * math.log(3)
    each, selected = EntropyWeighted(Settings()).loss(prediction_of(*rows), {})
    assert selected.tolist() == [h[0] < tau, h[1] < tau] == [True, False]
    assert each.tolist() == pytest.approx([math.exp(tau - x) * x for x in h])


def test_ent_w_weight_carries_no_gradient():
    logits = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    each, _ = EntropyWeighted(Settings()).loss(Prediction(logits), {})
    ours = torch.autograd.grad(each.sum(), logits)[0]
    p = Prediction(logits)
    weight = (0.5 * math.log(3) - p.entropy).exp().detach()
    assert torch.allclose(ours, torch.autograd.grad((weight * p.entropy).sum(), logits)[0])


def test_the_memory_of_an_objective_is_kept_saved_and_reset():
    class Counting(Tent):
        def loss(self, prediction, state):
            return prediction.entropy * state.get("batches", 1.0), None

        def next_state(self, prediction, state, selected):
            return {"batches": state.get("batches", torch.ones(())) + 1}

    try:
        component("counting", "objective", "for this test", alone=True)(Counting)
        adapter, stream = delta_tta.adapt(conv_net(), "counting"), batches(3)
        for x in stream:
            adapter(x)
        assert float(adapter.state_dict()["objective"]["batches"]) == 4
        assert adapter.signals.loss == pytest.approx(3 * adapter.signals.entropy)
        state = adapter.state_dict()
        adapter.reset()
        assert not adapter.state_dict()["objective"]
        adapter.load_state_dict(state)
        assert float(adapter.state_dict()["objective"]["batches"]) == 4
    finally:
        del COMPONENTS["counting"]


@pytest.mark.parametrize("margin", [0.3, 0.6, 0.9])
def test_eta_trains_on_sure_samples_that_differ_from_the_average(margin):
    stream = [logits_like_a_model(seed) for seed in range(8)]
    passed, weights, average = plain_eta(stream, margin)
    eta, state = Eta(Settings(similarity=margin)), {}
    for logits, wanted, weight in zip(stream, passed, weights, strict=True):
        prediction = Prediction(logits)
        each, selected = eta.loss(prediction, state)
        assert selected.tolist() == wanted
        assert each.tolist() == pytest.approx([w * entropy(p) for w, p in zip(weight, prediction.p, strict=True)])
        state = eta.next_state(prediction, state, selected)
    assert state["average"].tolist() == pytest.approx(average.tolist())
    assert 0 < sum(map(sum, passed)) < 8 * 16


def test_the_average_stays_where_no_sample_was_kept():
    eta = Eta(Settings(similarity=0.05))
    sure = Prediction(torch.tensor([[9.0, 0, 0], [9.0, 0, 0]]))
    state = eta.next_state(sure, {}, eta.loss(sure, {})[1])
    assert state["average"].tolist() == pytest.approx(sure.p[0].tolist())
    selected = eta.loss(sure, state)[1]
    assert not selected.any()
    assert eta.next_state(sure, state, selected) is state


def test_eatas_penalty_pulls_back_to_the_source():
    usual = {"optimizer": "adam", "lr": 0.01, "similarity": 1.0, "guard": "off"}
    free = delta_tta.adapt(conv_net(), "eata", source=batches(2, seed=5), fisher_weight=0.0, **usual)
    held = delta_tta.adapt(conv_net(), "eata", source=batches(2, seed=5), fisher_weight=1e3, **usual)
    eta = delta_tta.adapt(conv_net(), "eta", **usual)
    for x in batches(5):
        assert torch.equal(free(x), eta(x))
        held(x)

    source = conv_net().state_dict()

    def distance(adapter):
        return sum(float((p - source[name]).norm()) for name, p in adapter.state_dict()["parameters"].items())

    assert 0 < distance(held) < distance(free)


def test_a_saved_state_of_eata_brings_its_fisher():
    first = delta_tta.adapt(conv_net(), "eata", source=batches(2, seed=5), lr=0.01, similarity=1.0)
    for x in batches(3):
        first(x)
    second = delta_tta.adapt(conv_net(), "eata", source=batches(2, seed=6), lr=0.01, similarity=1.0)
    second.load_state_dict(first.state_dict())
    for x in batches(3, seed=1):
        assert torch.equal(first(x), second(x))


def test_a_failed_adapt_leaves_no_hooks():
    net = conv_net()
    with pytest.raises(SettingError):
        delta_tta.adapt(net, "eata+lame")
    assert not any(m._forward_pre_hooks for m in net.modules())
    with pytest.raises(delta_tta.InputError, match="not finite; look for NaN"):
        delta_tta.adapt(net, "eata", source=[torch.full((4, 3, 8, 8), torch.nan)])
    assert delta_tta.adapt(net, "tent")(batches(1)[0]).isfinite().all()


def test_eta_divides_by_the_samples_it_kept_whatever_the_preset():
    assert delta_tta.adapt(conv_net(), "eta", "cifar10-c").settings.reduction == "selected"
    assert delta_tta.adapt(conv_net(), "eta", "cifar10-c", reduction="batch").settings.reduction == "batch"
    assert delta_tta.adapt(conv_net(), "tent", "cifar10-c").settings.reduction == "batch"


def test_eata_and_ent_w_have_settings_of_their_own_on_cifar():
    cifar, usual = (delta_tta.adapt(conv_net(), "eata", p, source=batches(1)).settings for p in ("cifar100-c", None))
    assert (cifar.fisher_weight, usual.fisher_weight) == (1.0, 2000.0)
    for method in ("ent-w", "ent-w+delta", "ent-w+tbr+kl-div"):
        presets = ("cifar10-c", "cifar100-c", "imagenet-c", "imagenet-r", "ytbb-sub", None)
        objectives = [fitting(conv_net(), method, preset)._updater.objective for preset in presets]
        assert [objective.threshold for objective in objectives] == [0.4, 0.4, 0.5, 0.5, 0.5, 0.5]
    assert delta_tta.adapt(conv_net(), "ent-w", "cifar100-c", threshold=0.3).settings.threshold == 0.3
