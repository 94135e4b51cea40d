"""What all stand-in layers have in common."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import delta_tta
from all_methods import fitting
from nets import batches, conv_net


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
