"""The functions: closed forms, the formulas written out, properties, and that the classes do the same."""

import copy
import doctest
import itertools
import math
import random
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import delta_tta
from delta_tta import InputError, StreamError, functional
from delta_tta.evidence import MEMORY_OF_ANSWERS, STAYS, TEMPERATURES
from delta_tta.functional import (
    Draws,
    anchored_statistics,
    class_frequencies,
    dependent_indices,
    dot_weights,
    forward_filters,
    imbalanced_indices,
    order_evidence,
    pair_evidence,
    pooled_update,
    shuffled_indices,
    sticky_filter,
    tbr,
    tempered,
)
from delta_tta.norms.anchored import SHARES, Anchored
from delta_tta.norms.layers import Phase, Tbr
from delta_tta.postprocess.sticky import Sticky
from delta_tta.prediction import Prediction
from delta_tta.reweighting import Dot
from delta_tta.rules.filters import DOUBT, NEGLIGIBLE, PRIOR
from delta_tta.settings import Settings
from delta_tta.streams import stream
from nets import CLASSES, batches, conv_net, randomise_statistics
from plain import PlainNorm

EPS = 1e-5
LABELS = np.repeat(np.arange(5), 20)


def draw(*shape, seed=0, positive=False):
    found = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return found.abs() + 0.5 if positive else found


def moments(x):
    axes = [d for d in range(x.dim()) if d != 1]
    return x.mean(axes), (x.var(axes, correction=0) + EPS).sqrt()


@pytest.mark.parametrize("name", functional.__all__)
def test_each_has_arguments_and_an_example_that_runs(name):
    function = getattr(functional, name)
    assert function.__doc__
    assert ("Attributes:" if name == "Draws" else "Args:") in function.__doc__
    variables = vars(sys.modules[function.__module__])
    (example,) = doctest.DocTestFinder(recurse=False).find(function, name, globs=variables)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


def test_it_is_a_name_of_the_package():
    assert delta_tta.functional is functional


# TBR


def test_tbr_is_normalisation_with_the_averages():
    x, mean, std = draw(4, 3, 2, 2), draw(3, seed=1), draw(3, seed=2, positive=True)
    weight, bias = draw(3, seed=3), draw(3, seed=4)
    wide = (1, 3, 1, 1)
    expected = (x - mean.view(wide)) / std.view(wide)
    assert torch.allclose(tbr(x, None, None, mean, std), expected)
    assert torch.allclose(tbr(x, weight, bias, mean, std), expected * weight.view(wide) + bias.view(wide), atol=1e-13)


@pytest.mark.parametrize("shape", [(5, 2), (3, 2, 2, 2)])
def test_gradcheck_of_weight_and_bias(shape):
    x, mean, std = draw(*shape), draw(2, seed=1), draw(2, seed=2, positive=True)
    affine = draw(2, seed=3).requires_grad_(), draw(2, seed=4).requires_grad_()
    assert torch.autograd.gradcheck(lambda w, b: tbr(x, w, b, mean, std), affine)


@pytest.mark.parametrize("shape", [(5, 2), (3, 2, 2, 2)])
def test_gradcheck_where_the_averages_are_the_batchs(shape):
    """There r = 1 and d = 0 whatever x is, and finite differences see no constants."""
    inputs = draw(*shape).requires_grad_(), draw(2, seed=3).requires_grad_(), draw(2, seed=4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w, b: tbr(x, w, b, *(t.detach() for t in moments(x)), EPS), inputs)


def test_the_gradient_to_x_is_that_of_equation_1_with_its_constants():
    x, g = draw(3, 2, 2, 2).requires_grad_(), draw(3, 2, 2, 2, seed=1)
    weight, bias, mean, std = draw(2, seed=2), draw(2, seed=3), draw(2, seed=4), draw(2, seed=5, positive=True)
    (mean_b, std_b), wide = moments(x.detach()), (1, 2, 1, 1)

    def equation(x):
        now_mean, now_std = moments(x)
        r, d = std_b / std, (mean_b - mean) / std
        hat = (x - now_mean.view(wide)) / now_std.view(wide)
        return ((hat * r.view(wide) + d.view(wide)) * weight.view(wide) + bias.view(wide)) * g

    by_terms = torch.autograd.functional.jacobian(lambda x: equation(x).sum(), x.detach())
    step, flat = 1e-6, torch.eye(x.numel(), dtype=torch.float64).view(-1, *x.shape)
    differences = torch.stack(
        [(equation(x.detach() + step * e) - equation(x.detach() - step * e)).sum() / (2 * step) for e in flat]
    )
    ours = torch.autograd.grad(tbr(x, weight, bias, mean, std, EPS), x, g)[0]
    assert torch.allclose(ours, by_terms, atol=1e-12)
    assert torch.allclose(ours.flatten(), differences, atol=1e-7)


@settings(max_examples=40)
@given(
    size=st.integers(1, 6),
    channels=st.integers(1, 4),
    space=st.lists(st.integers(1, 4), max_size=2),
    eps=st.sampled_from([1e-5, 1e-3, 1.0]),
    seed=st.integers(0, 2**31),
)
def test_tbr_is_the_plain_one_for_any_shape(size, channels, space, eps, seed):
    layer = (nn.BatchNorm2d if len(space) == 2 else nn.BatchNorm1d)(channels, eps=eps).double()
    randomise_statistics(layer)
    plain = PlainNorm(layer, "tbr", 0.9, "inherit")
    x = draw(size, channels, *space, seed=seed).requires_grad_()
    g, wanted = draw(size, channels, *space, seed=seed + 1), (x, layer.weight, layer.bias)
    ours = tbr(x, layer.weight, layer.bias, plain.mean.clone(), plain.std.clone(), eps)
    theirs = plain(x)
    assert torch.allclose(ours, theirs, atol=1e-11)
    for a, b in zip(torch.autograd.grad(ours, wanted, g), torch.autograd.grad(theirs, wanted, g), strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-9 * max(1.0, float(b.abs().max())))


def test_the_layer_is_the_function_over_steps():
    layer, phase = randomise_statistics(nn.BatchNorm2d(3)).double(), Phase()
    phase.now = "observing"
    ours = Tbr(layer, None, Settings(init="inherit", alpha=0.9), phase)
    mean, std = layer.running_mean.clone(), (layer.running_var + layer.eps).sqrt()
    for seed in range(4):
        x, g = draw(6, 3, 4, 4, seed=seed).requires_grad_(), draw(6, 3, 4, 4, seed=seed + 10)
        wanted = (x, layer.weight, layer.bias)
        a, b = ours(x), tbr(x, layer.weight, layer.bias, mean, std, layer.eps)
        assert torch.equal(a, b)
        for one, other in zip(torch.autograd.grad(a, wanted, g), torch.autograd.grad(b, wanted, g), strict=True):
            assert torch.equal(one, other)
        ours.commit()
        mean_b, std_b = moments(x.detach())
        mean, std = torch.lerp(mean, mean_b, 0.1), torch.lerp(std, std_b, 0.1)
        assert torch.allclose(ours.mean, mean)
        mean, std = ours.mean.clone(), ours.std.clone()


def test_tbr_changes_nothing_and_needs_no_gradient():
    given_ = draw(4, 3), draw(3, seed=1), draw(3, seed=2), draw(3, seed=3), draw(3, seed=4, positive=True)
    before = [t.clone() for t in given_]
    with torch.no_grad():
        y = tbr(*given_)
    assert not y.requires_grad
    assert all(torch.equal(a, b) for a, b in zip(given_, before, strict=True))


def test_tbr_says_where_its_input_was_changed_before_the_gradient():
    x = draw(4, 3).requires_grad_() * 1
    y = tbr(x, None, None, draw(3), draw(3, positive=True))
    x.mul_(2)
    with pytest.raises(delta_tta.ModelError, match="in place"):
        y.sum().backward()


# DOT


def test_dot_weights_in_closed_form():
    z = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    labels, p = torch.tensor([0, 0, 2]), torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]], dtype=torch.float64)
    w = [2.0, 2.0, 5.0]
    assert dot_weights(labels, z).tolist() == pytest.approx([x / 3 for x in w], rel=1e-6)
    soft = [sum(a / b for a, b in zip(row, z.tolist(), strict=True)) for row in p.tolist()]
    assert dot_weights(p, z).tolist() == pytest.approx([2 * x / sum(soft) for x in soft], rel=1e-6)


def test_a_class_never_seen_weighs_by_epsilon_alone():
    z = torch.tensor([1.0, 0.0], dtype=torch.float64)
    w = dot_weights(torch.tensor([0, 1]), z, eps=0.25)
    assert w.tolist() == pytest.approx([2 * 0.8 / 4.8, 2 * 4.0 / 4.8])


@given(size=st.integers(1, 20), classes=st.integers(2, 12), lam=st.floats(0, 1), seed=st.integers(0, 999))
def test_properties_of_dot(size, classes, lam, seed):
    p = draw(size, classes, seed=seed).mul(3).softmax(1)
    z = class_frequencies(torch.full((classes,), 1 / classes, dtype=torch.float64), p, lam)
    assert float(z.sum()) == pytest.approx(1)
    assert z.tolist() == pytest.approx([lam / classes + (1 - lam) * float(p[:, k].mean()) for k in range(classes)])
    for answers in (p, p.argmax(1), p.argmax(1).int()):
        w = dot_weights(answers, z)
        assert w.shape == (size,)
        assert bool((w > 0).all())
        assert float(w.mean()) == pytest.approx(1)
    sure = torch.eye(classes, dtype=torch.float64)
    assert torch.allclose(dot_weights(sure, z), dot_weights(torch.arange(classes), z))
    by_frequency = dot_weights(torch.arange(classes), z)[z.argsort()]
    assert bool((by_frequency.diff() <= 0).all())  # the more frequent, the lighter, but for rounding
    assert (by_frequency[0] > by_frequency[-1]) or float(z.max() - z.min()) < 1e-9


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_the_class_is_the_functions_over_steps(kind):
    dot, state, z = Dot(Settings(dot=kind, lam=0.8)), {}, torch.full((5,), 0.2, dtype=torch.float64)
    for seed in range(4):
        said = Prediction(draw(7, 5, seed=seed))
        p = said.logits.softmax(1)
        assert torch.allclose(dot.weights(said, state), dot_weights(p if kind == "soft" else p.argmax(1), z))
        state, z = dot.next_state(said, state, None), class_frequencies(z, p, 0.8)
        assert torch.allclose(state["z"], z)


class FunctionalNorm(nn.Module):
    """TBR with its moving averages, of the function alone."""

    def __init__(self, layer, alpha):
        super().__init__()
        self.weight, self.bias, self.eps, self.alpha = layer.weight, layer.bias, layer.eps, alpha
        self.mean, self.std = layer.running_mean, (layer.running_var + layer.eps).sqrt()

    def forward(self, x):
        y = tbr(x, self.weight, self.bias, self.mean, self.std, self.eps)
        var, mean = torch.var_mean(x.detach(), (0, 2, 3), correction=0)
        self.mean = self.alpha * self.mean + (1 - self.alpha) * mean
        self.std = self.alpha * self.std + (1 - self.alpha) * (var + self.eps).sqrt()
        return y


def test_delta_written_with_the_functions_is_the_adapters():
    net = conv_net(sharp=1.5).double().eval()
    fine = {"lr": 1e-2, "optimizer": "sgd", "init": "inherit", "alpha": 0.9, "lam": 0.9, "dot": "hard"}
    adapter = delta_tta.adapt(copy.deepcopy(net), "tent+delta", **fine)
    net[1], net[4] = (FunctionalNorm(net[place], 0.9) for place in (1, 4))
    optimizer = torch.optim.SGD([p for place in (1, 4) for p in net[place].parameters()], lr=1e-2, momentum=0.9)
    z = torch.full((CLASSES,), 1 / CLASSES, dtype=torch.float64)
    for x in batches(5, size=10, dtype=torch.float64):
        logits = net(x)
        assert torch.allclose(adapter(x), logits, rtol=1e-9, atol=1e-9)
        p = logits.softmax(1)
        loss = (dot_weights(p.argmax(1), z) * -(p * p.log()).sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        z = class_frequencies(z, p.detach(), 0.9)
        assert torch.allclose(adapter.signals.frequencies, z, rtol=1e-9)


# anchored statistics


@given(share=st.floats(0, 1), seed=st.integers(0, 999))
def test_anchored_statistics_lie_between(share, seed):
    source, own = (draw(4, seed=seed), draw(4, seed=seed + 1, positive=True)), (draw(4, seed=seed + 2), draw(4).abs())
    found = anchored_statistics(*source, *own, share)
    for new, old, other in zip(found, source, own, strict=True):
        assert torch.allclose(new, (1 - share) * old + share * other)
    assert all(torch.equal(a, b) for a, b in zip(anchored_statistics(*source, *own, 0.0), source, strict=True))
    assert all(torch.allclose(a, b) for a, b in zip(anchored_statistics(*source, *own, 1.0), own, strict=True))


def test_anchored_statistics_keep_the_sources_type():
    source, own = (torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)), (torch.ones(2),) * 2
    assert {t.dtype for t in anchored_statistics(*source, *own, 0.5)} == {torch.float64}


@given(seen=st.integers(1, 40), size=st.integers(1, 20), seed=st.integers(0, 999))
def test_pooled_moments_are_those_of_all_samples(seen, size, seed):
    a, b = draw(seen, 3, seed=seed), 2 * draw(size, 3, seed=seed + 1) + 1
    statistics = [(x.mean(0), x.var(0, correction=0).sqrt()) for x in (a, b, torch.cat([a, b]))]
    before = [t.clone() for pair in statistics for t in pair]
    found = pooled_update(*statistics[0], *statistics[1], rate=size / (seen + size))
    assert all(torch.allclose(x, y, atol=1e-12) for x, y in zip(found, statistics[2], strict=True))
    assert all(torch.equal(x, y) for x, y in zip(before, (t for pair in statistics for t in pair), strict=True))


def test_pooled_moments_at_the_ends_and_in_place():
    old, new = (draw(3), draw(3, seed=1, positive=True)), (draw(3, seed=2), draw(3, seed=3, positive=True))
    for rate, expected in ((0.0, old), (1.0, new)):
        assert all(torch.allclose(a, b) for a, b in zip(pooled_update(*old, *new, rate), expected, strict=True))
    expected = pooled_update(*old, *new, 0.3)
    found = pooled_update(*old, *new, 0.3, out=old)
    assert all(a is b for a, b in zip(found, old, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(old, expected, strict=True))


def test_the_anchored_layer_is_the_functions_over_steps():
    layer, phase, slot = randomise_statistics(nn.BatchNorm2d(3)).double().eval(), Phase(), 2
    phase.slot, phase.now = slot, "observing"
    ours = Anchored(layer, None, Settings(), phase)
    source = layer.running_mean, (layer.running_var + layer.eps).sqrt()
    own = None
    for seed, rate in enumerate((1.0, 0.5, 0.3, 0.3)):
        phase.rates = (rate,) * len(SHARES)
        x = (draw(6, 3, 4, 4, seed=seed) + seed).requires_grad_()
        batch = moments(x.detach())
        mixed = anchored_statistics(*source, *(own or batch), SHARES[slot])
        expected = tbr(x, layer.weight, layer.bias, *mixed, layer.eps)
        found, g = ours(x), draw(6, 3, 4, 4, seed=9)
        assert torch.allclose(found, expected, atol=1e-12)
        assert torch.allclose(*(torch.autograd.grad(y, x, g)[0] for y in (found, expected)), atol=1e-12)
        ours.commit()
        own = pooled_update(*(own or batch), *batch, rate)
        assert torch.allclose(ours.mean[slot - 1], own[0])
        assert torch.allclose(ours.std[slot - 1], own[1])


# the sticky filter


def posterior(p, stay, q, start):
    """Probabilities of each class at each time, by adding up all sequences of classes."""
    size, classes = p.shape
    smooth, causal = np.zeros((size, classes)), np.zeros((size, classes))
    for until in range(1, size + 1):
        for path in np.ndindex(*[classes] * (until + 1)):  # with the class before the first
            weight = start[path[0]]
            for t, (before, now) in enumerate(itertools.pairwise(path)):
                weight *= (stay * (before == now) + (1 - stay) * q[t, now]) * p[t, now] / q[t, now]
            causal[until - 1, path[-1]] += weight
            if until == size:
                smooth[np.arange(size), path[1:]] += weight
    return [found / found.sum(1, keepdims=True) for found in (causal, smooth)]


def distributions(rng, *shape):
    found = rng.random(shape) + 0.05
    return found / found.sum(-1, keepdims=True)


@settings(max_examples=25)
@given(
    size=st.integers(1, 5),
    classes=st.integers(1, 3),
    stay=st.floats(0, 0.99),
    each=st.booleans(),
    begins=st.booleans(),
    seed=st.integers(0, 999),
)
def test_the_filter_is_the_sum_over_all_sequences(size, classes, stay, each, begins, seed):
    rng = np.random.default_rng(seed)
    p, q = distributions(rng, size, classes), distributions(rng, *([size] if each else []), classes)
    whole = np.broadcast_to(q, (size, classes))
    start = distributions(rng, classes) if begins else None
    expected = posterior(p, stay, whole, whole[0] if start is None else start)
    for smooth, wanted in zip((False, True), expected, strict=True):
        found = sticky_filter(p, stay, q, smooth=smooth, start=start)
        assert found.dtype == np.float32
        assert np.allclose(found, wanted, atol=1e-4)


@given(temperature=st.floats(0.5, 5), smooth=st.booleans(), seed=st.integers(0, 999))
def test_without_memory_it_is_p_at_that_temperature(temperature, smooth, seed):
    rng = np.random.default_rng(seed)
    p, q = distributions(rng, 6, 4), distributions(rng, 4)
    power = p ** (1 / temperature)
    found = sticky_filter(p, 0.0, q, temperature=temperature, smooth=smooth)
    assert np.allclose(found, power / power.sum(1, keepdims=True), atol=1e-5)
    assert np.allclose(found, tempered(np.log(p).astype(np.float32), np.array([temperature], np.float32))[0], atol=1e-5)


@given(stay=st.floats(0, 0.999), smooth=st.booleans(), seed=st.integers(0, 999))
def test_it_gives_distributions_also_where_classes_are_impossible(stay, smooth, seed):
    rng = np.random.default_rng(seed)
    p = np.eye(4)[rng.integers(4, size=9)]  # all but one
    found = sticky_filter(p, stay, rng.integers(1, 9, 4), smooth=smooth)  # counts serve as q
    assert np.array_equal(found, p)


def test_smooth_answers_backwards_are_those_of_the_sequence_backwards():
    """With the start at q, the model of the stream is the same in both directions."""
    rng = np.random.default_rng(0)
    p, q = distributions(rng, 12, 3), distributions(rng, 3)
    assert np.allclose(sticky_filter(p[::-1], 0.9, q)[::-1], sticky_filter(p, 0.9, q), atol=1e-5)


def test_causal_answers_go_on_and_know_nothing_of_what_comes():
    rng = np.random.default_rng(0)
    p, q = distributions(rng, 12, 3), distributions(rng, 3)
    whole = sticky_filter(p, 0.9, q, smooth=False)
    first = sticky_filter(p[:5], 0.9, q, smooth=False)
    assert np.array_equal(whole[:5], first)
    assert np.allclose(whole[5:], sticky_filter(p[5:], 0.9, q, smooth=False, start=first[-1]), atol=1e-6)
    assert np.allclose(whole[-1], sticky_filter(p, 0.9, q)[-1], atol=1e-6)


def test_tensors_and_empty_sequences_are_taken():
    p = draw(5, 3).softmax(1)
    assert np.array_equal(sticky_filter(p, 0.5, torch.ones(3)), sticky_filter(p.numpy(), 0.5, np.ones(3)))
    assert sticky_filter(np.zeros((0, 3)), 0.5, np.ones(3)).shape == (0, 3)


@pytest.mark.parametrize("wrong", [
    {"p": [0.5, 0.5]}, {"p": [[0.5, -0.5]]}, {"p": [[0.0, 0.0]]}, {"p": [[math.nan, 1.0]]}, {"p": [[]]},
    {"q": [1.0]}, {"q": [1.0, 0.0]}, {"q": [[0.5, 0.5]] * 2}, {"q": 1.0}, {"start": [1.0]}, {"start": [[0.5, 0.5]]},
    {"stay": 1.0}, {"stay": -0.1}, {"stay": math.nan}, {"temperature": 0.0}, {"temperature": math.inf},
])  # fmt: skip
def test_what_is_wrong_is_said(wrong):
    with pytest.raises(InputError, match=rf"^Expected .*`{next(iter(wrong))}`"):
        sticky_filter(**({"p": [[0.5, 0.5]], "stay": 0.5, "q": [0.5, 0.5]} | wrong))


@pytest.mark.parametrize("mode", ["smooth", "causal"])
def test_the_component_is_the_mean_of_such_filters(mode):
    """Its answers over a few batches, built from the functions: the beliefs, and the evidence that weighs them."""
    sticky, classes, smooth = Sticky(Settings(filter=mode)), 4, mode == "smooth"
    rng, grid = np.random.default_rng(0), (len(TEMPERATURES), len(STAYS))
    total, count, begins, evidence, changed = np.zeros((grid[0], classes)), 0.0, None, np.zeros(grid), 0.0
    for _ in range(5):
        labels = np.repeat(rng.integers(classes, size=2), 12)
        logits = (2 * np.eye(classes)[labels] + 1.5 * rng.standard_normal((24, classes))).astype(np.float32)
        p = tempered(logits)
        sums, seen = [], []
        for part in [p] if smooth else np.split(p, 24, 1):  # all that came before fades, by 1/e over 2,000 samples
            keep = math.exp(-part.shape[1] / MEMORY_OF_ANSWERS)
            total, count = keep * total + part.sum(1), keep * count + part.shape[1]
            sums.append(total), seen.append(count)
        sums, seen = np.stack(sums, 1), np.array(seen)[None, :, None]
        q, q_answer = ((sums + n / classes) / (seen + n) for n in (PRIOR, classes if smooth else PRIOR))
        start = np.repeat(q[:, :1], grid[1], 1).astype(np.float32) if begins is None else begins
        begins, z = forward_filters((p / q).astype(np.float32), q.astype(np.float32), start)
        after = []
        for new in np.log(z):
            evidence = math.exp(-1 / 256) * evidence + new
            after.append(evidence)
        scores = np.stack([evidence] * 24 if smooth else after).reshape(24, -1)
        weights = np.exp(scores) / (np.exp(scores).sum(1, keepdims=True) + math.exp(DOUBT))
        weights = np.where(weights > NEGLIGIBLE, weights, 0).reshape(24, *grid)
        expected = (1 - weights.sum((1, 2)))[:, None] * p[0]
        for t, s in np.ndindex(*grid):
            own = q_answer[t, 0] if smooth else q_answer[t]
            said = sticky_filter(p[0], STAYS[s], own, temperature=TEMPERATURES[t], smooth=smooth, start=start[t, s])
            expected = expected + weights[:, t, s, None] * said
        answer, state = sticky.answer(torch.from_numpy(logits))
        sticky.commit(state)
        assert np.allclose(answer.softmax(1).numpy(), expected, atol=1e-4)
        changed = max(changed, float(np.abs(expected - p[0]).max()))
    assert changed > 0.3  # the comparison is about something


# evidence


def test_evidence_of_one_pair_in_closed_form():
    """Two sure answers over K classes, q uniform: Z = 1 + s (K − 1) if they agree, 1 − s if not, at every T."""
    one, q = np.full((1, 4), -1e4, np.float32), np.full((len(TEMPERATURES), 4), 0.25, np.float32)
    one[0, 2] = 0
    other = np.roll(one, 1, axis=1)
    for second, z in ((one, [1 + 3 * s for s in STAYS]), (other, [1 - s for s in STAYS])):
        expected = math.log((len(TEMPERATURES) * sum(z) + 1) / (len(TEMPERATURES) * len(STAYS) + 1))
        assert pair_evidence(tempered(one), tempered(second), q) == pytest.approx(expected, rel=1e-4)
        both = tempered(np.concatenate([one, second]))  # two samples in order are one pair
        assert order_evidence(both, q) == pytest.approx(expected, rel=1e-4)


@given(seed=st.integers(0, 999))
def test_evidence_of_pairs_does_not_know_which_is_which(seed):
    rng = np.random.default_rng(seed)
    a, b = (tempered(rng.standard_normal((7, 5)).astype(np.float32)) for _ in range(2))
    q = (a.mean(1) + b.mean(1)) / 2
    assert pair_evidence(a, b, q) == pytest.approx(pair_evidence(b, a, q), abs=1e-4)
    turn = rng.permutation(7)
    assert pair_evidence(a[:, turn], b[:, turn], q) == pytest.approx(pair_evidence(a, b, q), abs=1e-4)


# streams


@given(count=st.integers(0, 50), seed=st.integers(0, 2**32 - 1))
def test_shuffled_indices_are_pythons_shuffle(count, seed):
    expected = list(range(count))
    random.Random(seed).shuffle(expected)
    found = shuffled_indices(count, seed)
    assert found.tolist() == expected
    assert found.dtype == np.int64


@given(rho=st.floats(0.05, 5), pi=st.floats(0.05, 1), seed=st.integers(0, 2**32 - 1), pieces=st.integers(1, 12))
def test_the_four_streams_are_the_functions(rho, pi, seed, pieces):
    assert np.array_equal(stream(LABELS, "IS+CB", seed=seed).indices, shuffled_indices(len(LABELS), seed))
    dependent = stream(LABELS, "DS+CB", rho=rho, seed=seed, pieces=pieces)
    assert np.array_equal(dependent.indices, dependent_indices(LABELS, rho, seed, pieces))
    drawn = imbalanced_indices(LABELS, pi, seed)
    assert np.array_equal(stream(LABELS, "IS+CI", pi=pi, seed=seed).indices, drawn[shuffled_indices(len(drawn), seed)])
    draws = Draws.of(seed)
    drawn = imbalanced_indices(LABELS, pi, draws)
    both = stream(LABELS, "DS+CI", rho=rho, pi=pi, seed=seed, pieces=pieces)
    assert np.array_equal(both.indices, drawn[dependent_indices(LABELS[drawn], rho, draws, pieces)])


@given(rho=st.floats(0.05, 5), pi=st.floats(0.05, 1), seed=st.integers(0, 999))
def test_properties_of_the_orders(rho, pi, seed):
    order = dependent_indices(LABELS, rho, seed)
    assert sorted(order.tolist()) == list(range(len(LABELS)))
    for c in range(5):
        own = order[LABELS[order] == c]
        assert (np.diff(own) > 0).all()  # within a class the samples keep their order
    counts = np.bincount(LABELS[imbalanced_indices(LABELS, pi, seed)])
    assert (np.diff(counts) <= 0).all()
    assert len(LABELS) < counts.sum() <= len(LABELS) + 5


@pytest.mark.parametrize("call", [
    lambda: dependent_indices(LABELS, 0.0), lambda: dependent_indices(LABELS, 1.0, pieces=0),
    lambda: dependent_indices([0, 2], 1.0), lambda: dependent_indices([], 1.0),
    lambda: dependent_indices(LABELS, 1.0, -1),
    lambda: imbalanced_indices(LABELS, 0.0), lambda: imbalanced_indices(LABELS, 1.5),
    lambda: imbalanced_indices([0, 2], 0.5), lambda: shuffled_indices(3, 2**32),
])  # fmt: skip
def test_streams_that_cannot_be_are_refused(call):
    with pytest.raises(StreamError, match=r"^Expected"):
        call()
