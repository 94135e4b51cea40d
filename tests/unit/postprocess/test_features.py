"""Features, the input of the classifier: where they are taken from, and what is refused."""

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta import InputError, ModelError
from nets import CLASSES, batches, conv_net


def test_features_are_the_input_of_the_last_linear_layer_or_of_the_named_one():
    x = batches(1)[0]
    net = conv_net()
    automatic = delta_tta.adapt(net, "lame")(x)
    assert torch.equal(automatic, delta_tta.adapt(conv_net(), "lame", features="9")(x))
    assert not torch.equal(automatic, delta_tta.adapt(conv_net(), "lame", features="3")(x))
    with pytest.raises(ModelError, match="no layer 'head' for `features`"):
        delta_tta.adapt(conv_net(), "lame", features="head")
    with pytest.raises(ModelError, match="no linear layer"):
        delta_tta.adapt(nn.Sequential(nn.Conv2d(3, 5, 1), nn.Flatten(), nn.MaxPool1d(64)), "lame")


def test_features_of_another_number_of_samples_are_refused():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(6, CLASSES)

        def forward(self, x):
            return self.body(x.repeat(2, 1))[: len(x)]

    with pytest.raises(InputError, match="Name the layer whose input to take"):
        delta_tta.adapt(Tokens(), "lame")(torch.randn(4, 6))


def test_features_that_the_model_changes_after_the_classifier_are_refused():
    class Overwriting(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 4)

        def forward(self, x):
            h = x.relu()
            y = self.head(h)
            h.zero_()
            return y

    with pytest.raises(InputError, match="changes the input of its classifier in place"):
        delta_tta.adapt(Overwriting(), "lame")(torch.randn(8, 6))
