"""Prior correction, against numbers found by hand."""

import pytest
import torch

import delta_tta
from delta_tta.postprocess.prior import smoothed_prior
from nets import batches, conv_net


def test_the_prior_is_the_mean_prediction_smoothed_less_in_large_batches():
    p = torch.tensor([[0.8, 0.1, 0.1], [0.6, 0.3, 0.1]])
    smooth = (1 / 2) / 0.7
    wanted = [(mean + smooth) / (1 + 3 * smooth) for mean in (0.7, 0.2, 0.1)]
    assert smoothed_prior(p).tolist() == pytest.approx(wanted)
    many = smoothed_prior(p.repeat(50, 1))
    smooth = (1 / 3) / 0.7
    assert many.tolist() == pytest.approx([(mean + smooth) / (1 + 3 * smooth) for mean in (0.7, 0.2, 0.1)])
    assert float(many.sum()) == pytest.approx(1)


def test_it_multiplies_the_logits_and_leaves_the_learning_alone():
    plain, ours = (delta_tta.adapt(conv_net(), m) for m in ("tent+delta", "tent+delta+prior-correction"))
    for x in batches(4):
        logits = plain(x)
        assert torch.allclose(ours(x), logits * smoothed_prior(logits.softmax(1)), atol=1e-6)
    for name, p in plain.state_dict()["parameters"].items():
        assert torch.equal(p, ours.state_dict()["parameters"][name])


def test_an_even_batch_is_answered_with_the_same_classes():
    net = torch.nn.Linear(4, 4, bias=False)
    torch.nn.init.eye_(net.weight)
    adapter = delta_tta.adapt(net, "source+prior-correction")
    x = 3 * torch.eye(4)
    assert torch.allclose(adapter(x), x / 4)
    assert adapter(x[:1]).argmax() == 0


def test_the_prior_can_turn_a_doubtful_answer():
    adapter = delta_tta.adapt(torch.nn.Identity(), "source+prior-correction")
    x = torch.cat([torch.tensor([[3.0, 3.1, 0.0]]), torch.tensor([[6.0, 0.0, 0.0]]).expand(9, -1)])
    assert x.argmax(1).tolist() == [1, *[0] * 9]
    assert adapter(x).argmax(1).tolist() == [0] * 10
