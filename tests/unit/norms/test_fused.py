"""The form of a norm layer that a compiler sees: value and gradient are those of the layer itself."""

import copy

import pytest
import torch
from torch import nn

from delta_tta.norms.anchored import Anchored
from delta_tta.norms.fused import fused, make_fused
from delta_tta.norms.layers import BatchStatistics, Phase, Tbr, Tema
from delta_tta.settings import Settings
from nets import randomise_statistics

KINDS = [Tema, Tbr, BatchStatistics, Anchored]


def made(kind, affine=True, dtype=torch.float64, **settings):
    """A layer that has met a batch, and its phase."""
    torch.manual_seed(0)
    phase = Phase()
    phase.slot, phase.rates = 2, (1.0,) * 5
    layer = kind(randomise_statistics(nn.BatchNorm2d(3, affine=affine)).to(dtype), None, Settings(**settings), phase)
    phase.now = "observing"
    layer(images(seed=1, dtype=dtype))
    layer.commit()
    return layer, phase


def images(seed=0, size=5, dtype=torch.float64):
    return 2 * torch.randn(size, 3, 4, 4, generator=torch.Generator().manual_seed(seed), dtype=dtype) + 1


def compiled(layer, x):
    return fused(x, layer.source.weight, layer.source.bias, layer.handle)


def with_gradients(function, x, parameters):
    x = x.clone().requires_grad_()
    y = function(x)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(9), dtype=y.dtype)
    return [y, *torch.autograd.grad(y, [x, *parameters], g)]


@pytest.mark.parametrize("now", ["frozen", "observing", "replaying", "source"])
@pytest.mark.parametrize("kind", KINDS)
def test_value_and_gradient_are_those_of_the_layer(kind, now):
    (layer, phase), x = made(kind), images()
    make_fused([layer])
    parameters = [layer.source.weight, layer.source.bias]
    phase.now = now
    expected = with_gradients(layer, x, parameters)
    layer.discard()
    found = with_gradients(lambda own: compiled(layer, own), x, parameters)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)
    with torch.no_grad():
        assert torch.allclose(compiled(layer, x), expected[0], atol=1e-8)


@pytest.mark.parametrize("kind", [Tema, Tbr, Anchored])
def test_it_observes_as_the_layer_does(kind):
    (one, phase), (other, other_phase) = made(kind), made(kind)
    make_fused([one])
    phase.now = other_phase.now = "observing"
    compiled(one, images())
    other(images())
    one.commit(), other.commit()
    for name, value in other.remembered().items():
        assert torch.allclose(one.remembered()[name], value)
        assert not torch.allclose(made(kind)[0].remembered()[name], value)


def test_a_batch_is_mixed_with_the_source_in_proportion_to_the_prior():
    (layer, phase), x = made(BatchStatistics, prior=15), images()
    make_fused([layer])
    phase.now = "observing"
    source = layer.source
    share = 15 / (15 + len(x))
    mean = (share * source.running_mean + (1 - share) * x.mean((0, 2, 3))).view(1, 3, 1, 1)
    var = (share * source.running_var + (1 - share) * x.var((0, 2, 3), correction=0)).view(1, 3, 1, 1)
    weight, bias = source.weight.view(1, 3, 1, 1), source.bias.view(1, 3, 1, 1)
    expected = (x - mean) / (var + source.eps).sqrt() * weight + bias
    with torch.no_grad():
        assert torch.allclose(compiled(layer, x), expected)


def test_without_gamma_and_beta():
    (layer, phase), x = made(Tbr, affine=False), images()
    make_fused([layer])
    phase.now = "replaying"
    found = with_gradients(lambda own: compiled(layer, own), x, [])
    for one, other in zip(found, with_gradients(layer, x, []), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


def test_features_in_half_precision_stay_so():
    layer, phase = made(Tema, dtype=torch.float32)
    make_fused([layer])
    phase.now = "frozen"
    x = images(dtype=torch.float32).to(torch.bfloat16).requires_grad_()
    y = compiled(layer, x)
    assert y.dtype == torch.bfloat16
    assert torch.autograd.grad(y.float().sum(), x)[0].dtype == torch.bfloat16
    assert torch.allclose(y.float(), layer(x.detach()).float(), atol=0.05)


def test_a_subclass_that_does_not_say_so_is_left_to_python():
    class Doubled(Tbr):
        def normalise(self, x, mean, std, seen):
            return 2 * super().normalise(x, mean, std, seen)

    layer, _ = made(Doubled)
    make_fused([layer])
    assert layer.handle is None


def test_a_copy_is_another_layer():
    layer, phase = made(Tema)
    make_fused([layer])
    twin, x = copy.deepcopy(layer), images()
    assert twin.handle not in (None, layer.handle)
    with torch.no_grad():
        twin.mean += 1
        phase.now = "frozen"
        assert not torch.allclose(compiled(twin, x), compiled(layer, x))
        assert torch.allclose(compiled(layer, x), layer(x))
