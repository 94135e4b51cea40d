"""SAR: the climb, the selections, the average of the loss, the recovery, the momentum."""

import math

import pytest
import torch

import delta_tta
from delta_tta import SettingError
from delta_tta.engine.optimizer import climbed
from delta_tta.methods.sar import Sar
from delta_tta.prediction import Prediction
from delta_tta.settings import Settings, make_settings
from delta_tta.signals import Reason
from nets import batches, conv_net, group_norm, same, snapshot


def prediction_of(*rows):
    return Prediction(torch.tensor(rows, dtype=torch.float64).log())


def test_published_defaults():
    s = delta_tta.adapt(conv_net(), "sar").settings
    assert (s.optimizer, s.lr, s.reduction) == ("sgd", 2.5e-4, "selected")
    sar = Sar(s)
    assert (sar.threshold, sar.sharpness, sar.recovery) == (0.4, 0.05, 0.2)
    assert make_settings("cifar10-c", {}, [Sar]).reduction == "selected"


@pytest.mark.parametrize(
    "wrong", [{"sar_rho": 0}, {"sar_rho": math.inf}, {"sar_recovery": -0.1}, {"sar_rho": math.nan}]
)
def test_settings_are_checked(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        delta_tta.adapt(conv_net(), "sar", **wrong)


def test_the_climb_is_as_long_as_rho_and_goes_along_the_gradient():
    a, b, c = (torch.nn.Parameter(torch.zeros(n, dtype=torch.float64)) for n in (2, 1, 3))
    parameters = {"a": a, "b": b, "c": c}
    found = climbed(parameters, [torch.tensor([3.0, 0.0]).double(), torch.tensor([4.0]).double(), None], 0.05)
    assert torch.allclose(found["a"], torch.tensor([0.03, 0.0]).double())
    assert torch.allclose(found["b"], torch.tensor([0.04]).double())
    assert torch.equal(found["c"], c.detach())
    assert climbed({"b": b}, [torch.tensor([math.nan])], 0.05) is None
    flat = climbed({"b": b}, [torch.zeros(1)], 0.05)
    assert torch.equal(flat["b"], b.detach())


def test_reliable_samples_and_the_average_of_their_loss():
    rows = [0.9, 0.05, 0.05], [0.34, 0.33, 0.33], [0.98, 0.01, 0.01]
    h = [-sum(q * math.log(q) for q in row) for row in rows]
    sar, p = Sar(Settings()), prediction_of(*rows)
    each, selected = sar.loss(p, {})
    assert each.tolist() == pytest.approx(h)
    assert selected.tolist() == [True, False, True]
    first = sar.next_state(p, {}, selected)
    assert float(first["loss"]) == pytest.approx((h[0] + h[2]) / 2)
    second = sar.next_state(p, first, torch.tensor([False, True, False]))
    assert float(second["loss"]) == pytest.approx(0.9 * (h[0] + h[2]) / 2 + 0.1 * h[1])
    assert sar.next_state(p, second, torch.zeros(3, dtype=torch.bool)) is second


def test_recovery_is_asked_below_the_threshold_only():
    sar = Sar(Settings(extra=(("sar_recovery", 0.3),)))
    assert [sar.recovers({"loss": torch.tensor(v)}) for v in (0.29, 0.3, 0.31)] == [True, False, False]
    assert not sar.recovers({})


def test_parameters_recover_and_the_rest_goes_on():
    net = conv_net()
    adapter = delta_tta.adapt(net, "sar+tbr", lr=0.05, sar_recovery=10.0)  # at every batch
    fresh = {name: p.clone() for name, p in adapter.state_dict()["parameters"].items()}
    for x in batches(3, size=12):
        adapter(x)
        state = adapter.state_dict()
        assert same(state["parameters"], fresh)
    assert state["step"] == 3
    assert state["statistics"]
    assert all(float(v["momentum_buffer"].abs().sum()) > 0 for v in state["optimizer"].values())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_where_no_sample_trains_the_momentum_goes_on(optimizer):
    adapter = delta_tta.adapt(conv_net(), "sar", lr=0.01, optimizer=optimizer, sar_recovery=0.0)
    unsure = torch.zeros(4, 3, 8, 8)
    adapter._updater.objective.threshold = 1e-9
    adapter(unsure)
    assert adapter.signals.skipped.reason is Reason.THRESHOLD
    assert same(adapter.state_dict()["parameters"], adapter._updater.adapted.source)  # there was none yet
    adapter._updater.objective.threshold = 0.4
    before = snapshot(adapter.model)
    for x in batches(2, size=12):
        adapter(x)
    after = adapter.state_dict()["parameters"]
    adapter._updater.objective.threshold = 1e-9
    average = float(adapter.state_dict()["objective"]["loss"])
    momentum = {name: v.get("momentum_buffer") for name, v in adapter.state_dict()["optimizer"].items()}
    adapter(batches(1, size=12)[0])
    assert adapter.signals.used == 0
    assert float(adapter.state_dict()["objective"]["loss"]) == average
    for name, p in adapter.state_dict()["parameters"].items():
        if optimizer == "sgd":
            assert torch.allclose(p, after[name] - 0.01 * 0.9 * momentum[name], atol=1e-7)
        assert not torch.equal(p, after[name])
    assert not same(snapshot(adapter.model), before)


def test_nothing_is_left_of_the_climb_where_the_second_run_fails():
    class Failing(torch.nn.Module):
        runs = 0

        def forward(self, x):
            self.runs += 1
            if self.runs == 5:  # first batch: on a copy, again; second batch: answer, and at θ + ε
                raise ArithmeticError
            return x

    net, failing = conv_net(), Failing()
    net.insert(5, failing)
    adapter = delta_tta.adapt(net, "sar", lr=0.02)
    x = batches(1, size=12)[0]
    adapter(x)
    failing.runs = 3
    before = adapter.state_dict()
    with pytest.raises(ArithmeticError):
        adapter(x)
    assert adapter.state_dict()["checksum"] == before["checksum"]
    adapter(x)
    assert adapter.signals.step == 2


def test_reweighting_enters_both_runs():
    x = batches(6, size=12)
    answers = {}
    for method in ("sar", "sar+dot", "sar+tbr", "sar+delta", "sar+kl-div"):
        adapter = delta_tta.adapt(conv_net(), method, lr=0.05, sar_recovery=0.0)
        answers[method] = float([adapter(one) for one in x][-1].sum())
    assert len(set(answers.values())) == len(answers)


def test_group_norm_trains():
    net = conv_net(group_norm)
    adapter = delta_tta.adapt(net, "sar", lr=0.05)
    before = snapshot(net)
    for x in batches(4, size=12):
        adapter(x)
    changed = [name for name, value in snapshot(net).items() if not torch.equal(value, before[name])]
    assert changed == ["1.weight", "1.bias"]
