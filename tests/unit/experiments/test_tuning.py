"""Settings chosen on validation corruptions."""

import dataclasses

import pytest

from delta_tta.errors import SettingError
from delta_tta.experiments import tuning
from delta_tta.experiments.experiment import Experiment, Place
from delta_tta.streams import StreamSpec

SCENARIOS = (StreamSpec("IS+CB"), StreamSpec("DS+CB", rho=0.1))
BASE = Experiment(("tent+delta",), Place(images=40), SCENARIOS, ("fog", "spatter"), seeds=(2020, 2021))


def test_every_combination_meets_every_stream():
    found = tuning.trials(BASE, {"alpha": (0.9, 0.99), "lam": (0.8, 0.9, 0.95)})
    assert [str(trial) for trial in found[:2]] == ["alpha=0.9, lam=0.8", "alpha=0.9, lam=0.9"]
    assert len(found) == 6
    assert all(len(trial.cells) == 2 * 2 * 2 for trial in found)
    assert len({cell for trial in found for cell in trial.cells}) == 6 * 8
    for trial in found:
        assert {cell.spelled_out.alpha for cell in trial.cells} == {dict(trial.settings)["alpha"]}


def test_a_trial_is_judged_by_the_mean_over_scenarios():
    trial = tuning.trials(BASE, {"lam": (0.9,)})[0]
    shares = {"IS+CB": {"fog": 0.5, "spatter": 0.7}, "DS+CB": {"fog": 0.2, "spatter": 0.2}}
    judged = tuning.judged(trial, SCENARIOS, lambda cell: shares[cell.stream.scenario][cell.corruptions[0]])
    assert judged.by_scenario == pytest.approx((60, 20))
    assert judged.mean == pytest.approx(40)
    assert tuning.reference(BASE).cells[0].method == "source"


def test_which_may_be_as_good_is_judged_pair_by_pair():
    """The same mean difference of 1: clear where it is the same everywhere, not where it comes and goes."""
    one = tuning.trials(BASE, {"lam": (0.9,)})[0]
    best = dataclasses.replace(one, values=(50.0, 60.0, 70.0, 80.0))
    assert not tuning.tied(best, dataclasses.replace(one, values=(49.1, 58.9, 69.0, 79.0)))
    assert tuning.tied(best, dataclasses.replace(one, values=(54.0, 54.0, 74.0, 74.0)))
    assert tuning.tied(best, best)
    alone = dataclasses.replace(one, values=(50.0,))
    assert tuning.tied(alone, alone)
    assert tuning.tied(alone, dataclasses.replace(one, values=(49.0,))), "one stream alone cannot tell"


@pytest.mark.parametrize(
    ("base", "grid", "words"),
    [
        (BASE, {}, "at least one setting"),
        (BASE, {"alpha": ()}, "one value for each"),
        (dataclasses.replace(BASE, methods=("tent", "pl")), {"alpha": (0.9,)}, "one method to tune, but got 2"),
        (dataclasses.replace(BASE, settings={"alpha": 0.5}), {"alpha": (0.9,)}, "`alpha` either to be tuned or"),
        (BASE, {"alpah": (0.9,)}, "alpha"),
        (BASE, {"alpha": (3,)}, "between 0 and 1"),
    ],
)
def test_what_makes_no_sense_is_refused(base, grid, words):
    with pytest.raises(SettingError, match=words):
        tuning.trials(base, grid)
