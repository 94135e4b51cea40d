"""CMF: the Kalman filter over the weights, against its formulas."""

import pytest
import torch

import delta_tta
from nets import batches, conv_net

SCALE = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


def trained(method, **settings):
    net = conv_net()
    adapter = delta_tta.adapt(net, method, **SCALE, **{"optimizer": "adam", "lr": 0.05, **settings})
    losses = []
    for x in batches(4):
        adapter(x)
        losses.append(adapter.signals.loss)
    return adapter.state_dict(), losses


def test_the_filter_of_cmf_lets_the_refined_source_follow():
    still, moved = trained("cmf", cmf_q=1e-6)[0]["objective"], trained("cmf", cmf_q=400.0)[0]["objective"]
    name = "hidden.4.bias"
    source = conv_net()[4].bias
    assert torch.allclose(still[name], source, atol=1e-7)
    assert (moved[name] - source).abs().max() > 1e-3
    assert float(moved["variance"]) > float(still["variance"])


def test_a_cmf_that_does_not_follow_is_roid():
    (roid, losses), (cmf, others) = trained("roid"), trained("cmf", cmf_q=1e-6)
    assert losses == pytest.approx(others, rel=1e-5)
    assert all(torch.allclose(cmf["parameters"][name], p, atol=1e-6) for name, p in roid["parameters"].items())
