"""The Fisher information: the mean squared gradient on the model's own labels."""

import math

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta import SettingError
from nets import batches, conv_net


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
    fisher = adapter.state_dict()["fisher"]
    assert torch.allclose(fisher["norm.weight"], (error * n) ** 2, atol=1e-6)
    assert torch.allclose(fisher["norm.bias"], error**2, atol=1e-6)


def test_eata_needs_source_images_and_says_so():
    with pytest.raises(SettingError, match=r"adapt\(model, 'eata', source=loader\)"):
        delta_tta.adapt(conv_net(), "eata")
    net = conv_net()
    loader = [(x, torch.zeros(len(x))) for x in batches(2)]  # with labels, which are not looked at
    one = delta_tta.adapt(net, "eata", source=loader).state_dict()["fisher"]
    other = delta_tta.adapt(conv_net(), "eata", source=batches(2)).state_dict()["fisher"]
    assert all(torch.equal(one[k], other[k]) for k in one)
    with pytest.raises(delta_tta.InputError, match="at least one batch"):
        delta_tta.adapt(conv_net(), "eata", source=[])
