"""Objectives and DOT against closed forms; the registry."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import delta_tta
from delta_tta.objectives import EntropyWeighted, PseudoLabel, Tent
from delta_tta.prediction import Prediction
from delta_tta.registry import COMPONENTS, component
from delta_tta.reweighting import Dot
from delta_tta.settings import Settings
from nets import batches, conv_net


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


@given(st.lists(st.lists(st.floats(-50, 50), min_size=3, max_size=3), min_size=1, max_size=8))
def test_entropy_lies_between_0_and_ln_k_and_its_gradient_is_finite(rows):
    logits = torch.tensor(rows, requires_grad=True)
    h = Prediction(logits).entropy
    assert bool((h >= -1e-6).all())
    assert bool((h <= math.log(3) + 1e-5).all())
    assert torch.autograd.grad(h.sum(), logits)[0].isfinite().all()


def test_dot_starts_uniform_and_follows_algorithm_1():
    dot, p = Dot(Settings(lam=0.9)), prediction_of([0.7, 0.2, 0.1], [0.6, 0.1, 0.3], [0.1, 0.1, 0.8])
    assert torch.allclose(dot.weights(p, {}), torch.ones(3, dtype=torch.float64))
    state = dot.next_state(p, {}, None)
    z = [0.9 / 3 + 0.1 * (a + b + c) / 3 for a, b, c in zip(*p.p.tolist(), strict=True)]
    assert state["z"].tolist() == pytest.approx(z)
    w = [1 / z[0], 1 / z[0], 1 / z[2]]
    assert dot.weights(p, state).tolist() == pytest.approx([3 * x / sum(w) for x in w], rel=1e-6)


def test_soft_dot_is_the_expectation_over_classes():
    dot, p = Dot(Settings(dot="soft")), prediction_of([0.7, 0.2, 0.1], [0.1, 0.1, 0.8])
    z = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    w = [sum(q / f for q, f in zip(row, z.tolist(), strict=True)) for row in p.p.tolist()]
    assert dot.weights(p, {"z": z}).tolist() == pytest.approx([2 * x / sum(w) for x in w], rel=1e-6)


@given(st.integers(1, 20), st.integers(2, 30), st.floats(0, 1), st.sampled_from(["hard", "soft"]), st.integers(0, 999))
def test_dot_weights_average_1_and_z_stays_a_distribution(size, classes, lam, kind, seed):
    g = torch.Generator().manual_seed(seed)
    dot, state = Dot(Settings(lam=lam, dot=kind)), {}
    for _ in range(5):
        p = Prediction(torch.randn(size, classes, generator=g, dtype=torch.float64) * 3)
        w = dot.weights(p, state)
        assert float(w.mean()) == pytest.approx(1)
        assert bool((w > 0).all())
        state = dot.next_state(p, state, None)
        assert float(state["z"].sum()) == pytest.approx(1)


def test_a_frequent_class_weighs_less():
    dot = Dot(Settings())
    state = {"z": torch.tensor([0.8, 0.1, 0.1])}
    w = dot.weights(Prediction(torch.tensor([[5.0, 0, 0], [0, 5.0, 0]])), state)
    assert float(w[1] / w[0]) == pytest.approx(8, rel=1e-5)


def test_a_name_can_be_taken_once():
    with pytest.raises(ValueError, match="taken by Tent"):
        component("tent", "objective", "again", alone=True)(Tent)
    assert COMPONENTS["tent"].build is Tent


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


@pytest.mark.parametrize("dot", ["hard", "soft"])
def test_the_loss_is_computed_in_full_precision_under_autocast(dot):
    adapter, stream = delta_tta.adapt(conv_net(classes=50), "tent+delta", dot=dot, lam=0.5), batches(4)
    for x in stream:
        z = adapter.signals.frequencies
        with torch.autocast("cpu", torch.bfloat16):
            logits = adapter(x)
    p = Prediction(logits)
    w = Dot(Settings(dot=dot)).weights(p, {"z": z})
    assert adapter.signals.loss == pytest.approx(float((w * p.entropy).mean()), rel=1e-6)
