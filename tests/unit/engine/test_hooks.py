"""Without a guard nothing happens on the way of a batch, but for the check that may warn."""

import pytest
import torch

from delta_tta.engine.hooks import Hooks
from delta_tta.prediction import Prediction


class Counting:
    """A check that remembers what it has seen."""

    def __init__(self):
        self.seen = []

    def look(self, prediction):
        self.seen.append(prediction)

    def reset(self):
        self.seen.clear()


def never():
    raise AssertionError("the source was run")


def test_every_batch_is_answered_and_learnt_from():
    hooks, x = Hooks(), torch.full((2, 3), torch.nan)
    assert hooks.before_answer(x, x) is None
    assert hooks.before_commit(2, never) is None
    assert not hooks.on
    assert (hooks.refused, hooks.rollbacks, hooks.memory()) == (0, 0, {})


def test_an_attempt_passes_errors_on():
    attempt = Hooks().attempt()
    with pytest.raises(ArithmeticError), attempt():
        raise ArithmeticError


def test_the_check_looks_at_what_was_learnt_from_and_begins_again_at_a_reset():
    check = Counting()
    hooks, prediction = Hooks(check), Prediction(torch.zeros(2, 3))
    hooks.before_answer(torch.zeros(2), torch.zeros(2))
    assert check.seen == []
    hooks.after_commit(prediction)
    assert check.seen == [prediction]
    hooks.reset()
    assert check.seen == []
    Hooks().after_commit(prediction)  # there need not be one
