"""The gradient of a batch, against autograd on a plain network; and where the loss is sharpest."""

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta.engine.again import Again
from delta_tta.engine.descent import descent, losses
from delta_tta.objectives import PseudoLabel, Tent
from delta_tta.prediction import Prediction
from delta_tta.settings import Settings
from nets import batches, conv_net

NAMES = ["1.weight", "1.bias", "4.weight", "4.bias"]


class Sharp(Tent):
    """The entropy, its gradient taken where it is higher."""

    sharpness = 0.5


class Sure(Sharp):
    """The same, of sure samples only."""

    def loss(self, prediction, state):
        return prediction.entropy, prediction.entropy.detach() < 0.5


class Coasting(PseudoLabel):
    coasts = True


def found(objective, method="tent"):
    """Loss and gradients of one batch."""
    updater = delta_tta.adapt(conv_net(), method, guard="off")._updater
    x = batches(1)[0]
    with updater.in_phase("observing"):
        prediction = Prediction(updater.learnable(x))
    return descent(updater, objective, prediction, Again(updater, x, "cpu"))


def plain():
    """The network with batch norms in training mode, and its trained parameters."""
    net = conv_net().eval()
    for layer in net:
        if isinstance(layer, nn.BatchNorm2d):
            layer.train()
    return net, [dict(net.named_parameters())[name] for name in NAMES]


def entropies(net):
    log_p = net(batches(1)[0]).log_softmax(1)
    return -(log_p.exp() * log_p).sum(1)


def assert_close(gradients, expected):
    assert len(gradients) == len(expected)
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_it_is_the_gradient_of_the_loss():
    net, parameters = plain()
    mean = entropies(net).mean()
    loss, gradients = found(Tent(Settings()))
    assert loss.value.item() == pytest.approx(mean.item(), rel=1e-5)
    assert loss.count == len(batches(1)[0])
    assert_close(gradients, torch.autograd.grad(mean, parameters))


def climb(far, mean, parameters):
    """Move the parameters by so much along the gradient."""
    gradients = torch.autograd.grad(mean, parameters)
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    with torch.no_grad():
        for p, g in zip(parameters, gradients, strict=True):
            p += far * g / norm


def test_a_sharp_objective_takes_the_gradient_after_a_climb():
    net, parameters = plain()
    climb(0.5, entropies(net).mean(), parameters)
    mean = entropies(net).mean()
    loss, gradients = found(Sharp(Settings()))
    assert loss.value.item() == pytest.approx(mean.item(), rel=1e-4)
    assert_close(gradients, torch.autograd.grad(mean, parameters))


def test_after_the_climb_only_those_train_that_are_selected_both_times():
    net, parameters = plain()
    first = entropies(net)
    chosen = first.detach() < 0.5
    climb(0.5, first[chosen].mean(), parameters)
    second = entropies(net)
    both = chosen & (second.detach() < 0.5)
    assert 0 < both.sum() < chosen.sum() < len(first)
    loss, gradients = found(Sure(Settings()))
    assert loss.selected.tolist() == both.tolist()
    assert_close(gradients, torch.autograd.grad(second[both].mean(), parameters))


@pytest.mark.parametrize(("kind", "zeros"), [(PseudoLabel, 0), (Coasting, 4)])
def test_where_no_sample_trains_there_is_no_gradient_unless_the_momentum_goes_on(kind, zeros):
    loss, gradients = found(kind(Settings(threshold=1.0)))
    assert loss.count == 0
    assert [float(g.abs().max()) for g in gradients] == [0.0] * zeros


def test_the_batch_divides_where_the_settings_say_so():
    objective, values = PseudoLabel(Settings(threshold=0.9)), {}
    for reduction in ("batch", "selected"):
        updater = delta_tta.adapt(conv_net(), "tent", reduction=reduction)._updater
        prediction = Prediction(updater.predict(batches(1)[0]))
        values[reduction] = losses(updater, objective, prediction)
    size, count = len(batches(1)[0]), values["batch"].count
    assert 0 < count < size
    assert float(values["batch"].value) == pytest.approx(float(values["selected"].value) * count / size)
