"""ETA, EATA and DOT's rivals against plain loops and closed forms."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import delta_tta
from delta_tta import MethodError, SettingError
from delta_tta.objectives import Eta
from delta_tta.prediction import Prediction
from delta_tta.reweighting import Diversity, KlDivergence, LogitAdjustment, SampleDrop
from delta_tta.settings import Settings
from nets import batches, conv_net
from sentences import fitting


def logits_like_a_model(seed, size=16, classes=4, sharp=4.0):
    return torch.randn(size, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * sharp


def entropy(p):
    return -sum(float(v) * math.log(float(v)) for v in p if v > 0)


def cosine(a, b):
    return float(np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))


def plain_eta(stream, margin, threshold=0.4):
    """Which samples pass, and with what weight, written sample by sample."""
    average, passed, weights = None, [], []
    for logits in stream:
        p = logits.softmax(1).numpy()
        bound = threshold * math.log(p.shape[1])
        kept = [i for i in range(len(p)) if entropy(p[i]) < bound]
        if average is not None:
            kept = [i for i in kept if abs(cosine(average, p[i])) < margin]
        if kept:
            mean = p[kept].mean(0)
            average = mean if average is None else 0.9 * average + 0.1 * mean
        passed.append([i in kept for i in range(len(p))])
        weights.append([math.exp(bound - entropy(row)) for row in p])
    return passed, weights, average


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
    word, z = LogitAdjustment(Settings(lam=0.9)), torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    logits = logits_like_a_model(0, classes=3)
    seen = word.adjusted(Prediction(logits), {"z": z})
    wanted = logits.exp() * z / (logits.exp() * z).sum(1, keepdim=True)
    assert torch.allclose(seen.p, wanted, atol=1e-6)
    after = word.next_state(Prediction(logits), {"z": z}, None)["z"]
    assert torch.allclose(after, 0.9 * z + 0.1 * logits.softmax(1).mean(0))
    uniform = word.adjusted(Prediction(logits), {})
    assert torch.allclose(uniform.p, logits.softmax(1))


def test_kl_div_measures_how_far_the_moving_average_is_from_uniform():
    word = KlDivergence(Settings(kl_weight=10.0))
    balanced = Prediction(torch.eye(4, dtype=torch.float64) * 50)
    one_class = Prediction(torch.tensor([[50.0, 0, 0, 0]] * 3, dtype=torch.float64))
    assert float(word.penalty(balanced, {})) == pytest.approx(0, abs=1e-9)
    q = [0.9 / 4 + 0.1, 0.9 / 4, 0.9 / 4, 0.9 / 4]  # uniform before the first batch
    assert float(word.penalty(one_class, {})) == pytest.approx(10 * sum(v * math.log(4 * v) for v in q))
    state = word.next_state(one_class, {}, None)
    assert state["average"].tolist() == pytest.approx(q)
    for _ in range(200):
        state = word.next_state(one_class, state, None)
    assert float(word.penalty(one_class, state)) == pytest.approx(10 * math.log(4))
    logits = logits_like_a_model(1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: word.penalty(Prediction(x), state), logits)


def test_kl_div_pulls_against_what_was_predicted_before_this_batch():
    word, logits = KlDivergence(Settings(kl_weight=1.0)), torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    state = {"average": torch.tensor([0.9, 0.1], dtype=torch.float64)}
    (gradient,) = torch.autograd.grad(word.penalty(Prediction(logits), state), logits)
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
    word, state = SampleDrop(Settings()), {}

    def of(*labels):
        return Prediction(torch.eye(3, dtype=torch.float64)[list(labels)] * 5)

    first = of(0, 0, 0, 1)
    assert word.select(first, None, state) is None  # nothing was counted yet
    state = word.next_state(first, state, torch.tensor([True, True, False, True]))
    assert state["counts"].tolist() == [2, 1, 0]  # the mean is 1: class 0 is in the majority
    second = of(0, 1, 2)
    selected = word.select(second, torch.tensor([True, True, True]), state)
    assert selected.tolist() == [False, True, True]
    assert word.next_state(second, state, selected)["counts"].tolist() == [2, 2, 1]


class Scaled(nn.Module):
    """Logits γ x + β: the Fisher information is known in closed form."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(2)
        with torch.no_grad():
            self.norm.weight.copy_(torch.tensor([1.5, 0.5]))
            self.norm.bias.copy_(torch.tensor([0.3, -0.2]))

    def forward(self, x):
        return self.norm(x)


def test_eatas_fisher_is_the_mean_squared_gradient_on_its_own_labels():
    x = torch.tensor([[1.0, -1.0]])  # LayerNorm makes of it ±1/√(1 + eps)
    adapter = delta_tta.adapt(Scaled(), "eata", source=[x, x])
    n = torch.tensor([1.0, -1.0]) / math.sqrt(1 + 1e-5)
    logits = torch.tensor([1.5, 0.5]) * n + torch.tensor([0.3, -0.2])
    error = logits.softmax(0) - torch.tensor([1.0, 0.0])  # gradient of cross entropy; the label is class 0
    fisher = adapter._updater.objective.fisher
    assert torch.allclose(fisher["norm.weight"], (error * n) ** 2, atol=1e-6)
    assert torch.allclose(fisher["norm.bias"], error**2, atol=1e-6)


def test_eatas_penalty_pulls_back_to_the_source():
    usual = {"optimizer": "adam", "lr": 0.01, "similarity": 1.0, "guard": "off"}
    free = delta_tta.adapt(conv_net(), "eata", source=batches(2, seed=5), fisher_weight=0.0, **usual)
    held = delta_tta.adapt(conv_net(), "eata", source=batches(2, seed=5), fisher_weight=1e3, **usual)
    eta = delta_tta.adapt(conv_net(), "eta", **usual)
    for x in batches(5):
        assert torch.equal(free(x), eta(x))
        held(x)

    def distance(adapter):
        adapted = adapter._updater.adapted
        return sum(float((p - adapted.source[name]).detach().norm()) for name, p in adapted.parameters.items())

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


def test_a_class_that_is_masked_out_adds_nothing_to_kl_div():
    logits = torch.tensor([[2.0, 0.0, -torch.inf]], requires_grad=True)
    penalty = KlDivergence(Settings(kl_weight=1.0)).penalty(Prediction(logits), {})
    assert torch.autograd.grad(penalty, logits)[0].isfinite().all()


def test_eata_needs_source_images_and_says_so():
    with pytest.raises(SettingError, match=r"source=loader.*or write 'eta'"):
        delta_tta.adapt(conv_net(), "eata")
    net = conv_net()
    loader = [(x, torch.zeros(len(x))) for x in batches(2)]  # with labels, which are not looked at
    one = delta_tta.adapt(net, "eata", source=loader)._updater.objective.fisher
    other = delta_tta.adapt(conv_net(), "eata", source=batches(2))._updater.objective.fisher
    assert all(torch.equal(one[k], other[k]) for k in one)
    with pytest.raises(delta_tta.InputError, match="at least one batch"):
        delta_tta.adapt(conv_net(), "eata", source=[])


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("eta+div-w", "does what 'div-w' does already"),
        ("tent+dot+la", "two reweightings"),
        ("cotta+delta", r"a standalone method that takes no parts\. Write 'cotta'"),
        ("lame+tbr", r"write 'tent\+tbr\+lame'"),
        ("tent+cotta", "cannot follow"),
        ("bn+la", "weighs the samples of a loss"),
    ],
)
def test_what_makes_no_sense_says_why(method, words):
    with pytest.raises(MethodError, match=words):
        delta_tta.adapt(conv_net(), method)
