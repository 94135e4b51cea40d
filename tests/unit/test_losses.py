"""The losses and weights: against torch and numbers found by hand, and where a class is impossible."""

import math

import pytest
import torch
import torch.nn.functional as F

from delta_tta.losses import (
    cross_entropy,
    divergence_from_uniform,
    entropy,
    entropy_weights,
    fisher_penalty,
    marginal_entropy,
    pseudo_label_cross_entropy,
    roid_weights,
    soft_likelihood_ratio,
    symmetric_cross_entropy,
    to_unit_range,
    unlike_average,
)


def logs(*rows):
    return torch.tensor(rows, dtype=torch.float64).log()


def draw(seed=0):
    """Return log-probabilities, (6, 4)."""
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).log_softmax(1)


def weights(rows, average):
    log_p = logs(*rows)
    return roid_weights(log_p.exp(), entropy(log_p), torch.tensor(average, dtype=torch.float64), 1 / 3)


def test_they_are_those_of_torch():
    log_p, log_q = draw(0), draw(1)
    p, labels = log_p.exp(), log_p.argmax(1)
    assert torch.allclose(entropy(log_p), torch.distributions.Categorical(logits=log_p).entropy())
    assert torch.allclose(marginal_entropy(log_p), torch.distributions.Categorical(p.mean(0)).entropy())
    assert torch.allclose(pseudo_label_cross_entropy(log_p), F.cross_entropy(log_p, labels, reduction="none"))
    others = (labels + 1) % 4
    assert torch.allclose(pseudo_label_cross_entropy(log_p, others), F.cross_entropy(log_p, others, reduction="none"))
    assert torch.allclose(cross_entropy(p, log_q), F.cross_entropy(log_q, p, reduction="none"))
    both = (cross_entropy(p, log_q) + cross_entropy(log_q.exp(), log_p)) / 2
    assert torch.allclose(symmetric_cross_entropy(log_p, log_q), both)
    mean, uniform = p.mean(0), torch.full((4,), 0.25, dtype=torch.float64)
    assert torch.allclose(divergence_from_uniform(mean), F.kl_div(uniform.log(), mean, reduction="sum"))
    margin = 0.4 * math.log(4)
    assert torch.allclose(entropy_weights(entropy(log_p), margin), math.exp(margin) / entropy(log_p).exp())


def against_another(log_p):
    return symmetric_cross_entropy(log_p, draw(1)[:1])


@pytest.mark.parametrize("loss", [entropy, pseudo_label_cross_entropy, soft_likelihood_ratio, against_another])
def test_losses_and_gradients_are_finite_where_a_class_is_impossible(loss):
    logits = torch.tensor([[0.3, -math.inf, 0.1, 2.0]], dtype=torch.float64, requires_grad=True)
    value = loss(logits.log_softmax(1))
    value.sum().backward()
    assert value.shape == (1,)
    assert value.isfinite().all()
    assert logits.grad.isfinite().all()


def test_gradients_reach_the_log_probabilities():
    log_p, log_q = draw(0).requires_grad_(), draw(1)
    for loss in (entropy, pseudo_label_cross_entropy, soft_likelihood_ratio, marginal_entropy):
        assert torch.autograd.gradcheck(loss, log_p)
    assert torch.autograd.gradcheck(lambda given: symmetric_cross_entropy(given, log_q), log_p)
    assert torch.autograd.gradcheck(lambda given: cross_entropy(log_q.exp(), given), log_p)


def test_what_points_where_the_average_points_is_no_news():
    average = torch.tensor([3.0, 4.0])
    p = torch.tensor([[3.0, 4.0], [4.0, -3.0], [1.0, 0.0]])  # cosines 1, 0 and 0.6
    assert unlike_average(p, average, margin=0.5).tolist() == [False, True, False]
    assert unlike_average(p, average, margin=0.61).tolist() == [False, True, True]


def test_the_penalty_counts_each_parameter_by_what_it_matters():
    here, there = {"a": torch.tensor([1.0, 5.0]), "b": torch.tensor(2.0)}, {"a": torch.zeros(2), "b": torch.tensor(2.0)}
    assert float(fisher_penalty(here, there, {"a": torch.tensor([7.0, 1.0]), "b": torch.tensor(9.0)})) == 7 + 25


def test_the_likelihood_ratio_is_zero_where_nothing_is_likelier_and_flat_where_all_is_clear():
    even, sure, surest = soft_likelihood_ratio(logs([0.5, 0.5], [0.8, 0.2], [0.995, 0.005])).tolist()
    assert even == pytest.approx(-math.log(1 + 1e-5))
    assert sure == pytest.approx(-0.8 * math.log(4 + 1e-5) - 0.2 * math.log(0.25 + 1e-5))
    assert surest == pytest.approx(-0.99 * math.log(99 + 1e-5) - 0.005 * math.log(0.005 / 0.995 + 1e-5))
    impossible = torch.tensor([[0.0, -math.inf]], requires_grad=True)
    soft_likelihood_ratio(impossible.log_softmax(1)).sum().backward()
    assert soft_likelihood_ratio(impossible.log_softmax(1)).isfinite().all()
    assert impossible.grad[0, 0] == 0


def test_the_symmetric_cross_entropy_goes_both_ways():
    p, q = logs([0.9, 0.1]), logs([0.6, 0.4])
    one = -(0.6 * math.log(0.9) + 0.4 * math.log(0.1))
    other = -(0.9 * math.log(0.6) + 0.1 * math.log(0.4))
    assert float(symmetric_cross_entropy(p, q)) == pytest.approx((one + other) / 2)
    assert torch.equal(symmetric_cross_entropy(p, q), symmetric_cross_entropy(q, p))


def test_the_sure_and_diverse_weigh_most_and_the_least_diverse_do_not_train():
    usual, half, sure = [0.9, 0.1], [0.5, 0.5], [0.01, 0.99]
    found = weights([usual, half, sure], usual)
    assert found.tolist() == pytest.approx([0, 0, math.exp(3)])
    apart = weights([usual, half, [0.2, 0.8]], usual)
    least, most = (sum(p * math.log(p) for p in row) for row in (half, usual))
    assert float(apart[2]) == pytest.approx(
        math.exp(3 * (0.2 * math.log(0.2) + 0.8 * math.log(0.8) - least) / (most - least))
    )


def test_where_all_samples_are_alike_all_train_with_the_same_weight():
    for rows in ([[0.7, 0.3]], [[0.7, 0.3]] * 4):
        assert weights(rows, [0.5, 0.5]).tolist() == [1.0] * len(rows)
    assert to_unit_range(torch.tensor([3.0, 1.0, 2.0])).tolist() == [1.0, 0.0, 0.5]
    assert to_unit_range(torch.tensor([3.0, 3.0])).tolist() == [0.0, 0.0]
