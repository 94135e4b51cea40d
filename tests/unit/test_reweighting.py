"""DOT and its rivals against plain loops and closed forms."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import delta_tta
from delta_tta.prediction import Prediction
from delta_tta.reweighting import Diversity, Dot, KlDivergence, LogitAdjustment, SampleDrop
from delta_tta.settings import Settings
from nets import batches, conv_net
from similarity import logits_like_a_model, plain_eta


def prediction_of(*rows):
    return Prediction(torch.tensor(rows, dtype=torch.float64).log())


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


def test_ent_w_with_div_w_and_etas_threshold_is_eta():
    wild = {"lr": 0.05, "similarity": 0.8, "guard": "off"}
    a = delta_tta.adapt(conv_net(), "eta", **wild)
    b = delta_tta.adapt(conv_net(), "ent-w+div-w", threshold=0.4, **wild)
    used = []
    for x in batches(6):
        assert torch.equal(a(x), b(x))
        assert a.signals.used == b.signals.used
        used.append(a.signals.used)
    assert 0 < sum(used[1:]) < 5


def test_div_w_filters_what_the_objective_selected():
    stream = [logits_like_a_model(seed) for seed in range(5)]
    filter_, state = Diversity(Settings(similarity=0.5)), {}
    passed = plain_eta(stream, 0.5)[0]
    for logits, wanted in zip(stream, passed, strict=True):
        prediction = Prediction(logits)
        sure = prediction.entropy < 0.4 * math.log(4)
        selected = filter_.select(prediction, sure, state)
        assert selected.tolist() == wanted
        state = filter_.next_state(prediction, state, selected)


def test_la_shows_the_objective_logits_with_log_frequencies():
    part, z = LogitAdjustment(Settings(lam=0.9)), torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    logits = logits_like_a_model(0, classes=3)
    seen = part.adjusted(Prediction(logits), {"z": z})
    wanted = logits.exp() * z / (logits.exp() * z).sum(1, keepdim=True)
    assert torch.allclose(seen.p, wanted, atol=1e-6)
    after = part.next_state(Prediction(logits), {"z": z}, None)["z"]
    assert torch.allclose(after, 0.9 * z + 0.1 * logits.softmax(1).mean(0))
    uniform = part.adjusted(Prediction(logits), {})
    assert torch.allclose(uniform.p, logits.softmax(1))


def test_kl_div_measures_how_far_the_moving_average_is_from_uniform():
    part = KlDivergence(Settings(kl_weight=10.0))
    balanced = Prediction(torch.eye(4, dtype=torch.float64) * 50)
    one_class = Prediction(torch.tensor([[50.0, 0, 0, 0]] * 3, dtype=torch.float64))
    assert float(part.penalty(balanced, {})) == pytest.approx(0, abs=1e-9)
    q = [0.9 / 4 + 0.1, 0.9 / 4, 0.9 / 4, 0.9 / 4]  # uniform before the first batch
    assert float(part.penalty(one_class, {})) == pytest.approx(10 * sum(v * math.log(4 * v) for v in q))
    state = part.next_state(one_class, {}, None)
    assert state["average"].tolist() == pytest.approx(q)
    for _ in range(200):
        state = part.next_state(one_class, state, None)
    assert float(part.penalty(one_class, state)) == pytest.approx(10 * math.log(4))
    logits = logits_like_a_model(1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: part.penalty(Prediction(x), state), logits)


def test_kl_div_pulls_against_what_was_predicted_before_this_batch():
    part, logits = KlDivergence(Settings(kl_weight=1.0)), torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    state = {"average": torch.tensor([0.9, 0.1], dtype=torch.float64)}
    (gradient,) = torch.autograd.grad(part.penalty(Prediction(logits), state), logits)
    assert gradient[0, 0] > 0 > gradient[0, 1]  # the batch is uniform, the stream was not


def test_kl_div_goes_on_from_a_saved_state_and_forgets_at_a_reset():
    usual = {"lr": 0.05, "kl_weight": 100.0, "guard": "off", "update": "every"}
    first = delta_tta.adapt(conv_net(), "tent+kl-div", **usual)
    at_first = [first(x) for x in batches(3)]
    second = delta_tta.adapt(conv_net(), "tent+kl-div", **usual)
    second.load_state_dict(first.state_dict())
    assert second.state_dict()["reweighting"]["average"].std() > 0
    for x in batches(3, seed=1):
        assert torch.equal(first(x), second(x))
    second.reset()
    assert all(torch.equal(second(x), y) for x, y in zip(batches(3), at_first, strict=True))


def test_sample_drop_leaves_out_the_classes_used_most():
    part, state = SampleDrop(Settings()), {}

    def of(*labels):
        return Prediction(torch.eye(3, dtype=torch.float64)[list(labels)] * 5)

    first = of(0, 0, 0, 1)
    assert part.select(first, None, state) is None  # nothing was counted yet
    state = part.next_state(first, state, torch.tensor([True, True, False, True]))
    assert state["counts"].tolist() == [2, 1, 0]  # the mean is 1: class 0 is in the majority
    second = of(0, 1, 2)
    selected = part.select(second, torch.tensor([True, True, True]), state)
    assert selected.tolist() == [False, True, True]
    assert part.next_state(second, state, selected)["counts"].tolist() == [2, 2, 1]


def test_a_class_that_is_masked_out_adds_nothing_to_kl_div():
    logits = torch.tensor([[2.0, 0.0, -torch.inf]], requires_grad=True)
    penalty = KlDivergence(Settings(kl_weight=1.0)).penalty(Prediction(logits), {})
    assert torch.autograd.grad(penalty, logits)[0].isfinite().all()
