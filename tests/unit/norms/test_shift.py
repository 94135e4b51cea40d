"""How far a batch lies from the source, and how far its samples lie apart."""

import numpy as np
import pytest
import torch
from torch import nn

from delta_tta.norms.layers import Phase, Tema
from delta_tta.norms.shift import shift_of, sums
from delta_tta.rules.shift import distance
from delta_tta.settings import Settings


def layer(channels=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    bn = nn.BatchNorm2d(channels).double()
    bn.running_mean = torch.randn(channels, generator=g, dtype=torch.float64)
    bn.running_var = torch.rand(channels, generator=g, dtype=torch.float64) + 0.5
    return Tema(bn, None, Settings(), Phase())


def by_terms(norm, x):
    """The formula, channel by channel, as written."""
    far = varied = 0.0
    for c in range(x.shape[1]):
        mean, std = norm.source.running_mean[c], (norm.source.running_var[c] + norm.source.eps).sqrt()
        m = x[:, c].flatten(1).mean(1)
        s = (x[:, c].flatten(1).var(1, correction=0) + norm.source.eps).sqrt()
        own = (x[:, c].var(correction=0) + norm.source.eps).sqrt()
        far += ((x[:, c].mean() - mean) ** 2 + (own - std) ** 2) / (std**2 + own**2)
        varied += (m.var() + s.var()) / own**2
    return np.array([far, varied, x.shape[1]], dtype=float)


def test_it_is_the_formula_over_all_layers():
    first, second = layer(5, 0), layer(3, 1)
    x, y = torch.randn(7, 5, 4, 3, dtype=torch.float64) + 30, 2 * torch.randn(7, 3, 2, 2, dtype=torch.float64)
    totals = [sums(each, norm.source.running_mean, norm.source.eps) for norm, each in ((first, x), (second, y))]
    assert shift_of([first, second], totals) == pytest.approx(tuple(by_terms(first, x) + by_terms(second, y)))
    own = x.mean((0, 2, 3)), (x.var((0, 2, 3), correction=0) + first.source.eps).sqrt()
    assert distance(own, first.inherited()) == pytest.approx(by_terms(first, x)[0])


def test_parts_of_a_batch_add_up_and_a_rank_without_samples_adds_nothing():
    norm, x = layer(), torch.randn(9, 5, 4, 4, dtype=torch.float64)
    mean, eps = norm.source.running_mean, norm.source.eps
    parts = sums(x[:4], mean, eps) + sums(x[4:], mean, eps) + sums(x[:1], mean, eps, counts=False)
    assert shift_of([norm], [parts]) == pytest.approx(shift_of([norm], [sums(x, mean, eps)]))


def test_samples_of_the_source_lie_as_far_as_their_number_says():
    torch.manual_seed(0)
    norm, found = layer(64), []
    for _ in range(40):
        own = norm.source.running_mean.view(1, -1, 1, 1) + norm.source.running_var.sqrt().view(1, -1, 1, 1) * (
            torch.randn(16, 64, 4, 4, dtype=torch.float64)
        )
        one = shift_of([norm], [sums(own, norm.source.running_mean, norm.source.eps)])
        found.append(one.distance / one.variety)
    assert sum(found) / len(found) == pytest.approx(1 / 2 / 16, rel=0.15)  # d is over both variances, v over one


def test_without_source_statistics_or_without_a_difference_between_samples_there_is_no_variety():
    norm = layer()
    alike = torch.full((4, 5, 2, 2), 2.7)
    assert shift_of([], []) == (0, 0, 0)
    assert shift_of([norm], [sums(alike, norm.source.running_mean, norm.source.eps)]).variety == 0
