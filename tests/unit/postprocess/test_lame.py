"""LAME: its energy, its fixed point, its affinities, and where it finds the features."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import delta_tta
from delta_tta.postprocess.lame import affinity, energy, laplacian
from nets import batches, flat_net
from vision import timm


def problem(seed, size=20, classes=4):
    g = torch.Generator().manual_seed(seed)
    features = nn.functional.normalize(torch.randn(size, 8, generator=g, dtype=torch.float64), dim=1)
    p = (2 * torch.randn(size, classes, generator=g, dtype=torch.float64)).softmax(1)
    return features, -(p + 1e-10).log()


@given(st.integers(0, 1000), st.sampled_from(["rbf", "linear"]))
def test_the_energy_never_rises(seed, kind):
    features, unary = problem(seed)
    weights = affinity(features, kind, 5)
    y = (-unary).softmax(1)
    before = float("inf")
    for _ in range(30):
        # Each pair counted once; as W is positive semi-definite, a step minimises a bound of this.
        now = float(energy(unary, weights / 2, y))
        assert now <= before + 1e-9 * abs(now)
        before = now
        y = (weights @ y - unary).softmax(1)


@pytest.mark.parametrize("kind", ["knn", "rbf", "linear"])
def test_it_ends_at_a_fixed_point(kind):
    features, unary = problem(3)
    weights = affinity(features, kind, 5)
    y = laplacian(unary, weights).softmax(1)
    assert torch.allclose((weights @ y - unary).softmax(1), y, atol=1e-3)


def test_without_neighbours_the_answer_is_the_models():
    _, unary = problem(0)
    y = laplacian(unary, torch.zeros(20, 20, dtype=torch.float64)).softmax(1)
    assert torch.allclose(y, (-unary).exp() / (-unary).exp().sum(1, keepdim=True))


def test_knn_marks_the_five_nearest_others_and_is_directed():
    features, _ = problem(1)
    weights = affinity(features, "knn", 5)
    for i in range(20):
        distance = [(float((features[i] - features[j]).norm()), j) for j in range(20) if j != i]
        nearest = {j for _, j in sorted(distance)[:5]}
        assert {j for j in range(20) if weights[i, j] == 1} == nearest
    assert not torch.equal(weights, weights.T)
    assert affinity(features[:3], "knn", 5).sum() == 6  # fewer others than neighbours


def test_rbf_is_scaled_by_the_mean_of_the_kth_smallest_distance():
    features, _ = problem(2, size=10)
    d = torch.tensor([[float((a - b).norm()) for b in features] for a in features], dtype=torch.float64)
    sigma = float(torch.tensor([sorted(row)[2] for row in d.tolist()]).mean())  # the third smallest, 0 among them
    assert torch.allclose(affinity(features, "rbf", 3), torch.exp(-(d**2) / (2 * sigma**2)), atol=1e-6)


def test_neighbours_agree_where_the_model_is_unsure():
    features = torch.tensor([[1.0, 0.0]] * 6 + [[0.0, 1.0]] * 6)
    logits = torch.tensor([[3.0, 0.0]] * 5 + [[0.0, 0.2]] + [[0.0, 3.0]] * 6)  # the sixth goes against its neighbours
    corrected = laplacian(-logits.log_softmax(1), affinity(features, "knn", 5))
    assert logits.argmax(1).tolist() == [0] * 5 + [1] * 7
    assert corrected.argmax(1).tolist() == [0] * 6 + [1] * 6


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "resnet10t"])
def test_it_works_on_any_model(name):
    net = timm.create_model(name, num_classes=7, **({"img_size": 32} if "vit" in name else {}))
    hooks = sum(len(m._forward_pre_hooks) for m in net.modules())
    adapter = delta_tta.adapt(net, "lame")
    assert adapter(torch.randn(6, 3, 32, 32)).shape == (6, 7)
    adapter.unload()
    assert sum(len(m._forward_pre_hooks) for m in net.modules()) == hooks


def test_learning_does_not_see_the_corrected_answers():
    plain, corrected = delta_tta.adapt(flat_net(), "tent+delta"), delta_tta.adapt(flat_net(), "tent+delta+lame")
    for x in batches(4, shape=(6,)):
        assert not torch.equal(plain(x), corrected(x))
        assert plain.signals.loss == corrected.signals.loss
