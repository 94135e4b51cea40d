"""What an adapter reports: reasons that are text as well, and which of them blame the batch."""

import copy
import pickle

import pytest

from delta_tta.signals import Outcome, Reason, Skip


@pytest.mark.parametrize("reason", Reason)
def test_a_skip_is_its_reason_in_words(reason):
    assert Skip(reason) == reason.value
    found = Skip(reason, "in layer 3")
    assert found == f"{reason.value}: in layer 3"
    for again in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert (again, again.reason) == (found, reason)


def test_only_what_is_wrong_with_the_batch_is_bad_input():
    blamed = {reason for reason in Reason if Outcome(skipped=Skip(reason)).bad_input}
    assert blamed == {Reason.NOT_FINITE, Reason.OUT_OF_PROPORTION, Reason.BLANK}
    assert not Outcome().bad_input
