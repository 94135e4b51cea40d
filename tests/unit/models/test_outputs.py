"""A model that answers with some of its outputs only."""

import pytest
import torch

import delta_tta
from delta_tta.errors import ModelError
from delta_tta.models.outputs import Outputs
from delta_tta.normalization import Normalisation
from nets import batches, conv_net


def test_it_answers_with_the_chosen_outputs_in_their_order():
    net, x = conv_net().eval(), batches(1)[0]
    assert torch.equal(Outputs(net, [3, 0])(x), net(x)[:, [3, 0]])


def test_its_state_is_that_of_the_model():
    net = conv_net()
    assert set(Outputs(net, [1]).state_dict()) == {f"model.{name}" for name in net.state_dict()}


def test_the_normalisation_is_that_of_the_model():
    net = conv_net()
    assert not hasattr(Outputs(net, [1]), "normalisation")
    net.normalisation = Normalisation((0.1, 0.2, 0.3), (1, 1, 1))
    assert Outputs(net, [1]).normalisation is net.normalisation


@pytest.mark.parametrize("outputs", [[], [-1, 2], [1, 1]])
def test_which_outputs_there_may_be(outputs):
    with pytest.raises(ModelError, match="different numbers from 0, at least one"):
        Outputs(conv_net(), outputs)


def test_what_is_learnt_is_about_the_chosen_classes():
    adapter = delta_tta.adapt(Outputs(conv_net(), [4, 2, 1]), "tent+delta")
    for x in batches(3):
        assert adapter(x).shape == (12, 3)
    assert adapter.signals.frequencies.shape == (3,)
    assert adapter.signals.entropy <= torch.tensor(3.0).log()
