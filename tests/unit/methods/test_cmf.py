"""CMF: the Kalman filter over the weights, against its formulas."""

import pytest
import torch

import delta_tta
from delta_tta.methods import cmf
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


def test_the_weights_follow_the_kalman_filter_written_out(monkeypatch):
    """θ is noted after each step of the optimizer; the filter then moves it by the formulas in the module."""
    settings = {"cmf_alpha": 0.9, "cmf_gamma": 0.8, "cmf_q": 30.0, "optimizer": "adam", "lr": 0.05}
    adapter = delta_tta.adapt(conv_net(), "cmf", **SCALE, **settings)
    stepped = []
    own = cmf.average_into

    def noted(parameters, others, share):
        stepped.append({name: p.detach().clone() for name, p in parameters.items()})
        own(parameters, others, share)

    monkeypatch.setattr(cmf, "average_into", noted)
    source = {name: p.detach().clone() for name, p in adapter._updater.adapted.parameters.items()}
    q = 30.0 * sum(p.numel() for p in source.values()) / 38400
    hidden, variance = dict(source), 0.0
    for x in batches(4):
        adapter(x)
        theta = stepped[-1]  # after the optimizer's step
        variance = 0.9**2 * variance + q
        kept = max(0.89, (1 - q) / (variance + 1 - q))
        hidden = {n: kept * (0.9 * h + 0.1 * source[n]) + (1 - kept) * theta[n] for n, h in hidden.items()}
        variance *= kept
        state = adapter.state_dict()
        for name, h in hidden.items():
            torch.testing.assert_close(state["objective"][f"hidden.{name}"], h, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(state["parameters"][name], 0.8 * theta[name] + 0.2 * h, rtol=1e-4, atol=1e-6)
        assert float(state["objective"]["variance"]) == pytest.approx(variance, rel=1e-5)
    assert 0.89 < kept < 0.9999
