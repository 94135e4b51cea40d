"""What all stand-in layers have in common."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import delta_tta
from all_methods import fitting
from delta_tta import InputError
from delta_tta.norms.base import batch_norm
from delta_tta.norms.layers import Phase, Tema
from delta_tta.settings import Settings
from nets import batches, conv_net, randomise_statistics


def test_gradient_checkpoints_change_nothing():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = conv_net()

        def forward(self, x):
            return self.net[6:](checkpoint(self.net[3:6], self.net[:3](x), use_reentrant=False))

    for method in ("tent", "tent+tema", "tent+delta", "tent+anchored"):
        for init in ("first", "inherit"):
            exact, other = (fitting(net, method, lr=0.1, init=init) for net in (conv_net(), Checkpointed()))
            for x in batches(4):
                assert torch.equal(other(x), exact(x))


def test_a_stand_in_shows_the_attributes_of_the_original():
    net = conv_net()
    mean = net[1].running_mean.clone()
    delta_tta.adapt(net, "tent+delta")
    assert torch.equal(net[1].running_mean, mean)
    assert net[1].weight is net[1].source.weight
    assert net[1].num_features == 8
    with pytest.raises(AttributeError, match="nonsense"):
        _ = net[1].nonsense


def made(source, tail=None, phase=None):
    return Tema(source, tail, Settings(init="inherit"), phase or Phase())


def test_features_of_a_wrong_shape_say_what_is_missing():
    layer = made(nn.BatchNorm2d(3))
    with pytest.raises(InputError, match=r"A BatchNorm2d of the model met features of shape \(3, 4, 4\).*whole batch"):
        layer(torch.zeros(3, 4, 4))
    assert layer(torch.zeros(2, 3, 4, 4)).shape == (2, 3, 4, 4)


def test_what_the_original_does_behind_normalising_is_done():
    source = randomise_statistics(nn.BatchNorm2d(3))
    x = torch.randn(4, 3, 5, 5)
    plain, layer = made(source), made(source, tail=lambda own, y: y.relu() + own.num_features)
    assert torch.allclose(layer(x), plain(x).relu() + 3)


def test_the_source_answers_as_in_eval_mode_and_without_statistics_as_in_train_mode():
    phase, x = Phase(), torch.randn(6, 3, 5, 5) * 2 + 1
    phase.now = "source"
    source = randomise_statistics(nn.BatchNorm2d(3))
    assert torch.allclose(made(source, phase=phase)(x), copy.deepcopy(source).eval()(x), atol=1e-5)
    bare = nn.BatchNorm2d(3, track_running_stats=False)
    assert torch.allclose(made(bare, phase=phase)(x), copy.deepcopy(bare).train()(x), atol=1e-5)


def test_the_source_s_statistics_are_mean_and_standard_deviation_and_a_copy():
    source = randomise_statistics(nn.BatchNorm1d(4)).to(torch.bfloat16)
    layer = made(source)
    mean, std = layer.inherited()
    assert mean.dtype == std.dtype == torch.float32
    assert torch.allclose(mean, source.running_mean.float())
    assert torch.allclose(std, (source.running_var.float() + source.eps).sqrt())
    mean.zero_()
    assert source.running_mean.any()
    assert made(nn.BatchNorm1d(4, track_running_stats=False)).inherited() is None


def test_the_batch_s_statistics_are_those_of_train_mode():
    x = torch.randn(7, 4, dtype=torch.float64) * 3
    mean, std, seen = made(nn.BatchNorm1d(4).double()).of_batch(x)
    assert torch.allclose(mean, x.mean(0))
    assert torch.allclose(std, (x.var(0, correction=0) + 1e-5).sqrt())
    assert seen.statistics[0] is mean


def test_batch_norm_takes_a_single_value_per_channel():
    layer = randomise_statistics(nn.BatchNorm1d(4))
    one, several = torch.randn(1, 4), torch.randn(5, 4)
    assert torch.allclose(batch_norm(one, layer), layer.bias.expand(1, 4), atol=1e-3)
    assert torch.allclose(batch_norm(several, layer), copy.deepcopy(layer).train()(several), atol=1e-6)


@pytest.mark.parametrize(
    ("state", "fits"),
    [
        ({"mean": torch.zeros(4), "std": torch.ones(4)}, True),
        ({"mean": torch.zeros(3), "std": torch.ones(3)}, False),
        ({"mean": torch.zeros(4)}, False),
        ({"mean": torch.zeros(4), "std": torch.ones(4), "more": torch.ones(4)}, False),
    ],
)
def test_the_shapes_of_a_saved_state(state, fits):
    assert made(nn.BatchNorm1d(4)).fits(state) == fits
