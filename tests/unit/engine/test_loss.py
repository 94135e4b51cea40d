"""The loss of a batch: what is added up, over which samples, and by how many it is divided."""

import pytest
import torch

from delta_tta.engine.loss import loss_of
from delta_tta.objectives import Eata, PseudoLabel, Tent
from delta_tta.prediction import Prediction
from delta_tta.reweighting import Dot, KlDivergence
from delta_tta.settings import Settings

P = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
H = -(P * P.log()).sum(1)


def loss(objective, reweighting=None, whole_batch=False, state=None, parameters=None, **given):
    return loss_of(
        Prediction(P.log()), objective, {}, reweighting, state or {}, parameters or {}, whole_batch=whole_batch, **given
    )


def test_the_mean_of_all_samples():
    found = loss(Tent(Settings()))
    assert float(found.value) == pytest.approx(float(H.mean()))
    assert (found.count, found.selected) == (3, None)


@pytest.mark.parametrize(("whole_batch", "divisor"), [(False, 2), (True, 3)])
def test_samples_below_the_threshold_count_where_the_whole_batch_divides(whole_batch, divisor):
    found = loss(PseudoLabel(Settings(threshold=0.7)), whole_batch=whole_batch)
    assert found.selected.tolist() == [True, False, True]
    assert float(found.value) == pytest.approx(float(-(P[0, 0].log() + P[2, 1].log())) / divisor)


def test_where_no_sample_trains_the_loss_is_zero():
    found = loss(PseudoLabel(Settings(threshold=0.95)))
    assert (float(found.value), found.count) == (0.0, 0)


def test_weights_and_penalties():
    z = torch.tensor([0.8, 0.2])
    found = loss(Tent(Settings()), Dot(Settings()), state={"z": z})
    rare = torch.tensor([1 / 0.8, 1 / 0.8, 1 / 0.2])
    assert float(found.value) == pytest.approx(float((rare / rare.mean() * H).mean()))
    mean = P.mean(0)
    moved = 0.9 * 0.5 + 0.1 * mean
    divergence = float((moved * (2 * moved).log()).sum())
    assert float(loss(Tent(Settings()), KlDivergence(Settings(kl_weight=10.0))).value) == pytest.approx(
        float(H.mean()) + 10 * divergence, rel=1e-5
    )
    eata = Eata(Settings(threshold=2.0, fisher_weight=3.0))  # all samples train
    eata.hold({"w": torch.zeros(1)}, {"w": torch.tensor([0.5])})
    here = {"w": torch.tensor([2.0])}
    assert float(loss(eata, parameters=here).value - loss(eata, parameters={"w": torch.zeros(1)}).value) == 6.0


def test_only_the_given_samples_may_train():
    found = loss(Tent(Settings()), among=torch.tensor([False, True, False]))
    assert found.count == 1
    assert float(found.value) == pytest.approx(float(H[1]))
