"""TBR-B: the statistics against closed forms, how samples are measured, and who moves them how much."""

import copy
import math

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta import StateError
from delta_tta.norms import Balanced, Phase
from delta_tta.norms.balanced import Balance
from delta_tta.norms.statistics import sample_moments
from delta_tta.prediction import Prediction
from delta_tta.settings import Settings
from nets import CLASSES, batches, conv_net, flat_net

ALIKE = {"lam_b": 1.0, "alpha_b": 1.0}
"""The class frequencies stay uniform, so every sample weighs 1; the averages never forget."""


def sure_of(*labels, classes=4):
    return Prediction(torch.full((len(labels), classes), -50.0, dtype=torch.float64).scatter_(1, rows(labels), 50.0))


def rows(labels):
    return torch.tensor(labels).unsqueeze(1)


def layer_and_balance(kind=nn.BatchNorm2d, channels=3, **settings):
    chosen, phase = Settings(**{"init": "first", **settings}), Phase()
    phase.now = "observing"
    layer = kind(channels).double()
    nn.init.normal_(layer.running_mean)
    nn.init.uniform_(layer.running_var, 0.5, 2.0)
    return Balanced(layer, None, chosen, phase), Balance(chosen)


def learn(layer, balance, x, prediction, state=None):
    layer(x)
    balance.weigh(prediction, state or {}, [layer])
    layer.commit()


@pytest.mark.parametrize("kind", ["1d", "1d sequence", "2d", "3d"])
def test_with_equal_weights_the_statistics_are_those_of_all_samples_seen(kind):
    norm, shape = {
        "1d": (nn.BatchNorm1d, ()),
        "1d sequence": (nn.BatchNorm1d, (7,)),
        "2d": (nn.BatchNorm2d, (4, 5)),
        "3d": (nn.BatchNorm3d, (2, 3, 4)),
    }[kind]
    layer, balance = layer_and_balance(norm, **ALIKE)
    seen = []
    for step in range(6):
        seen.append(torch.randn(5, 3, *shape, dtype=torch.float64) * (1 + step) + step)  # it drifts
        learn(layer, balance, seen[-1], sure_of(0, 0, 0, 1, 2))
        together = torch.cat(seen).transpose(0, 1).flatten(1)
        assert torch.allclose(layer.mean, together.mean(1), rtol=1e-12)
        assert torch.allclose(layer.std, (together.var(1, correction=0) + 1e-5).sqrt(), rtol=1e-12)


def test_the_source_counts_as_one_batch():
    layer, balance = layer_and_balance(init="inherit", **ALIKE)
    means, seconds = [layer.source.running_mean], [layer.source.running_var + layer.source.running_mean**2]
    for _ in range(3):
        x = torch.randn(5, 3, 4, 4, dtype=torch.float64) + 2
        learn(layer, balance, x, sure_of(0, 1, 2, 3, 0))
        means.append(x.mean((0, 2, 3)))
        seconds.append((x**2).mean((0, 2, 3)))
        mean, second = torch.stack(means).mean(0), torch.stack(seconds).mean(0)
        assert torch.allclose(layer.mean, mean, rtol=1e-12)
        assert torch.allclose(layer.std, (second - mean**2 + 1e-5).sqrt(), rtol=1e-12)


def test_under_auto_the_first_batch_is_one_of_all_or_added_to_the_source():
    for size, held in ((8, 2), (9, 1)):
        layer, balance = layer_and_balance(init="auto")
        learn(layer, balance, torch.randn(size, 3, 8, 8, dtype=torch.float64), sure_of(*[0, 1] * 4, *[2] * (size - 8)))
        assert layer.count == held


def test_weights_are_one_over_k_f_with_this_batch_in_f_and_clipped():
    balance = Balance(Settings(lam_b=0.8, clip_b=3.0))
    state = {"f": torch.tensor([0.6, 0.3, 0.1, 0.0], dtype=torch.float64)}
    prediction = sure_of(0, 1, 3, 3)
    f = [0.8 * old + 0.2 * new for old, new in zip([0.6, 0.3, 0.1, 0.0], [0.25, 0.25, 0, 0.5], strict=True)]
    assert balance.next_state(prediction, state)["f"].tolist() == pytest.approx(f)
    w = [1 / (4 * f[0]), 1 / (4 * f[1]), 1 / (4 * f[3]), 1 / (4 * f[3])]
    assert balance.weights(prediction, state).tolist() == pytest.approx(w)
    assert max(w) > 2
    clipped = Balance(Settings(lam_b=0.8, clip_b=2.0)).weights(prediction, state)
    assert clipped.tolist() == pytest.approx([w[0], w[1], 2, 2])


def test_a_class_never_predicted_before_weighs_no_more_than_the_clip():
    balance = Balance(Settings(lam_b=1.0))
    state = {"f": torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)}
    assert balance.weights(sure_of(0, 1), state).tolist() == [0.25, 3.0]


def test_a_class_already_frequent_moves_the_statistics_less():
    state = {"f": torch.tensor([0.7, 0.1, 0.1, 0.1], dtype=torch.float64)}
    x = torch.randn(4, 3, 4, 4, dtype=torch.float64) + 1
    moved = []
    for label in (0, 1):
        torch.manual_seed(0)
        layer, balance = layer_and_balance(init="inherit", lam_b=1.0)
        layer.count, before = 1000, layer.mean.clone()
        learn(layer, balance, x, sure_of(*[label] * 4), state)
        moved.append(layer.mean - before)
    assert torch.allclose(moved[1], 7 * moved[0], rtol=1e-9)  # 1 / f each, and neither is clipped
    assert torch.allclose(moved[1], 0.02 / 0.4 * (x.mean((0, 2, 3)) - before), rtol=1e-9)


def test_within_a_batch_the_rare_sample_counts_for_more():
    layer, balance = layer_and_balance(lam_b=1.0)
    state = {"f": torch.tensor([0.5, 0.125, 0.25, 0.125], dtype=torch.float64)}
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    learn(layer, balance, x, sure_of(0, 1), state)  # weights 0.5 and 2, and the first batch replaces its own start
    means, seconds = x.mean((2, 3)), (x**2).mean((2, 3))
    mean, second = ((0.5 * both[0] + 2 * both[1]) / 2.5 for both in (means, seconds))
    assert torch.allclose(layer.mean, mean, rtol=1e-12)
    assert torch.allclose(layer.std, (second - mean**2 + 1e-5).sqrt(), rtol=1e-12)


def test_a_layer_used_twice_counts_both():
    layer, balance = layer_and_balance(**ALIKE)
    x, y = torch.randn(2, 5, 3, 4, 4, dtype=torch.float64)
    layer(x)
    learn(layer, balance, y + 1, sure_of(0, 1, 2, 3, 0))
    both = torch.cat([x, y + 1])
    assert layer.count == 2
    assert torch.allclose(layer.mean, both.mean((0, 2, 3)), rtol=1e-12)
    assert torch.allclose(layer.std, (both.var((0, 2, 3), correction=0) + 1e-5).sqrt(), rtol=1e-12)


def test_rows_that_are_no_samples_count_alike():
    """Three frames of each of two videos: whose they are the layer cannot know."""
    state = {"f": torch.tensor([0.5, 0.125, 0.25, 0.125], dtype=torch.float64)}
    layer, balance = layer_and_balance(lam_b=1.0)
    x = torch.randn(6, 3, 4, 4, dtype=torch.float64)
    learn(layer, balance, x, sure_of(0, 1), state)
    assert torch.allclose(layer.mean, x.mean((0, 2, 3)), rtol=1e-12)


def moments_by_terms(x):
    wide = x.double().flatten(2) if x.dim() > 2 else x.double().unsqueeze(2)
    mean = wide.mean((0, 2))
    apart = wide - mean[:, None]
    return mean, apart.mean(2), (apart**2).mean(2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "shape", [(6, 5), (1, 4), (6, 5, 3), (6, 5, 2, 2), (6, 5, 9, 7), (7, 40, 30, 31), (3, 40, 60, 61), (4, 3, 2, 3, 9)]
)
@pytest.mark.parametrize("layout", ["contiguous", "channels last", "strided"])
def test_samples_are_measured_right_in_every_layout(shape, dtype, layout):
    x = (torch.randn(shape, dtype=torch.float64) * 2 + 1).to(dtype)
    if layout == "channels last":
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    elif layout == "strided":
        x = torch.stack([x, x], -1)[..., 0]
    wide = torch.promote_types(dtype, torch.float32)
    for ours, theirs in zip(sample_moments(x), moments_by_terms(x), strict=True):
        assert ours.dtype == wide
        assert ours.shape == theirs.shape
        assert torch.allclose(ours.double(), theirs, rtol=1e-5, atol=1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("size", [4, 40])
def test_a_large_mean_costs_the_variance_no_digits(size):
    """In float32 the second moment minus the squared mean would be noise: 1000² has no digits left for 0.1²."""
    torch.manual_seed(0)
    layer, balance = layer_and_balance()
    layer.float()
    exact, _ = layer_and_balance()
    for _ in range(8):
        x = torch.randn(4, 3, size, size) * 0.1 + 1000
        learn(layer, balance, x, sure_of(0, 1, 0, 0))
        learn(exact, balance, x.double(), sure_of(0, 1, 0, 0))
    assert layer.std.dtype == torch.float32
    assert torch.allclose(layer.std.double(), exact.std, rtol=1e-3)


def test_one_sample_of_weight_does_not_leave_a_negative_variance():
    """One value per sample: all spread lies between them, and goes to nearly nothing when one weighs all."""
    layer, balance = layer_and_balance(nn.BatchNorm1d, 64, lam_b=1.0, clip_b=1e9)
    layer.float()
    state = {"f": torch.tensor([1.0, 1e-12, 0.0, 0.0], dtype=torch.float64)}
    for seed in range(5):
        torch.manual_seed(seed)
        learn(layer, balance, torch.randn(2, 64) * 1000, sure_of(0, 1), state)
        assert layer.std.isfinite().all()
        layer.reset()


def test_the_answer_does_not_wait_for_the_samples_to_be_measured():
    adapter = delta_tta.adapt(conv_net(), "tent+delta-b", init="inherit")
    adapter._learner.observe(batches(1)[0])
    for norm in adapter._learner.subject.norms.values():
        assert all(not hasattr(seen, "apart") for seen in norm._pending.seen)


def test_without_the_word_nothing_is_balanced():
    adapter = delta_tta.adapt(conv_net(), "tent+delta")
    adapter(batches(1)[0])
    assert adapter.state_dict()["balance"] == {}
    assert adapter.state_dict()["statistics"]["1"].keys() == {"mean", "std"}


def test_which_settings_it_heeds():
    def averages(**settings):
        adapter = delta_tta.adapt(conv_net(), "tent+tbr-b", **settings)
        for x in batches(4):
            adapter(x)
        return adapter.state_dict()["statistics"]["4"]["mean"]

    even = averages(pace="even")
    assert torch.equal(even, averages(pace="even", alpha=0.1))
    for other in ({"alpha_b": 0.1}, {"lam_b": 0.9}, {"clip_b": 0.1}):
        assert not torch.equal(even, averages(pace="even", **other))
    paced = averages()
    assert torch.equal(paced, averages(alpha_b=0.1))
    for other in ({"alpha": 0.1}, {"lam_b": 0.9}, {"clip_b": 0.1}, {"pace": "even"}):
        assert not torch.equal(paced, averages(**other))


def test_with_a_pace_the_weighted_moments_move_by_its_rate():
    """However often a class was seen, and however far the averages may leave the source."""
    layer, balance = layer_and_balance(init="inherit", lam_b=0.5)
    phase = layer._phase
    mean, second = layer.source.running_mean.clone(), layer.source.running_var + layer.source.running_mean**2
    for phase.rate, phase.reach in ((0.3, 1.0), (0.01, 0.2), (1.0, 0.0)):
        x, prediction = torch.randn(5, 3, 4, 4, dtype=torch.float64) + 2, sure_of(0, 0, 0, 1, 2)
        w = balance.weights(prediction, {})
        assert len(set(w.tolist())) > 1
        learn(layer, balance, x, prediction)
        own_mean, own_second = (w @ t.mean((2, 3)) / w.sum() for t in (x, x**2))
        mean, second = torch.lerp(mean, own_mean, phase.rate), torch.lerp(second, own_second, phase.rate)
        assert torch.allclose(layer.mean, mean, rtol=1e-12)
        assert torch.allclose(layer.std, (second - mean**2 + 1e-5).sqrt(), rtol=1e-12)


def test_frequencies_and_counts_are_state():
    adapter = delta_tta.adapt(flat_net(), "tent+tbr-b", lam_b=0.5)
    stream = batches(3, shape=(6,))
    for x in stream:
        adapter(x)
    state = adapter.state_dict()
    assert float(state["balance"]["f"].sum()) == pytest.approx(1, abs=1e-6)
    assert state["balance"]["f"].shape == (CLASSES,)
    assert float(state["statistics"]["1"]["count"]) == 4  # a batch of 12 values is not trusted: the source and three
    for damage in (
        lambda s: s["balance"].pop("f"),
        lambda s: s.pop("balance"),
        lambda s: s["balance"].update(f=torch.ones(3)),
        lambda s: s["statistics"]["1"].pop("count"),
        lambda s: s["statistics"]["1"].update(count=torch.tensor(math.nan)),
    ):
        damaged = copy.deepcopy(state)
        damage(damaged)
        with pytest.raises(StateError):
            adapter.load_state_dict(damaged)
    adapter.reset()
    assert adapter.state_dict()["balance"] == {}
