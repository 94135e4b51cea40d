"""Steps of the optimizers, and the climb to where the loss is sharpest."""

import math

import pytest
import torch
from torch import nn

from delta_tta.engine.optimizer import climbed, make_optimizer, take_step
from delta_tta.settings import Settings


def parameters():
    return [nn.Parameter(torch.tensor([1.0, 2.0])), nn.Parameter(torch.tensor([3.0]))]


def test_where_nothing_trains_there_is_no_optimizer():
    assert make_optimizer([], Settings()) is None


def test_sgd_has_momentum_and_a_users_gradients_stay():
    both = parameters()
    users = torch.tensor([7.0, 7.0])
    both[0].grad = users
    optimizer = make_optimizer(both, Settings(optimizer="sgd", lr=0.1))
    for _ in range(2):
        take_step(optimizer, both, [torch.tensor([1.0, 0.0]), None])
    assert both[0].tolist() == pytest.approx([1 - 0.1 - 0.19, 2.0])  # the second step: 0.1 · (1 + 0.9)
    assert both[1].tolist() == [3.0]
    assert both[0].grad is users
    assert both[1].grad is None


def test_nesterov_looks_ahead():
    both = parameters()
    take_step(make_optimizer(both, Settings(lr=0.1), nesterov=True), both, [torch.tensor([1.0, 0.0]), None])
    assert both[0].tolist() == pytest.approx([1 - 0.19, 2.0])


def test_the_first_step_of_adam_is_the_learning_rate():
    both = parameters()
    take_step(make_optimizer(both, Settings(optimizer="adam", lr=0.1)), both, [torch.tensor([5.0, -0.01]), None])
    assert both[0].tolist() == pytest.approx([0.9, 2.1], abs=1e-5)


def test_a_users_gradients_stay_where_a_step_fails():
    both = parameters()
    both[1].grad = users = torch.ones(1)
    optimizer = make_optimizer(both, Settings())
    optimizer.register_step_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        take_step(optimizer, both, [None, torch.zeros(1)])
    assert both[1].grad is users


def test_the_climb_goes_along_the_gradient_of_all_parameters():
    one, other = parameters()
    higher = climbed({"one": one, "other": other}, [torch.tensor([3.0, 0.0]), torch.tensor([4.0])], far=0.5)
    assert higher["one"].tolist() == pytest.approx([1.3, 2.0])
    assert higher["other"].tolist() == pytest.approx([3.4])
    assert one.tolist() == [1.0, 2.0]
    assert climbed({"one": one}, [torch.tensor([math.nan, 0.0])], far=0.5) is None
