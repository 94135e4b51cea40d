"""What the journal counts and forgets."""

import numpy as np
import pytest

from delta_tta.rules.accuracy import Accuracy
from delta_tta.serve.journal import Histogram, Journal
from delta_tta.signals import Reason, Signals, Skip


def test_a_histogram_counts_what_is_at_most_each_bound():
    found = Histogram((1, 2, 4))
    for value in (0.5, 1, 1.5, 4, 5):
        found.add(value)
    assert found.buckets() == [("1.0", 2), ("2.0", 3), ("4.0", 4), ("+Inf", 5)]
    assert found.sum == 12


def test_it_keeps_the_last_and_counts_all():
    journal = Journal(3)
    for number in range(700):
        journal.batch(np.array([number % 3, 1]), 0.5, 0.01, None)
        journal.event("skip", str(number))
    found = journal.as_dict()
    assert found["samples"] == 1400
    assert (len(found["history"]), len(found["answers"]), len(found["events"])) == (600, 600, 50)
    assert found["history"][-1]["samples"] == 1400
    assert found["answers"][-2:] == [0, 1]
    assert found["events"][-1]["text"] == "699"
    assert found["latency"] == {"p50": None, "p95": None}
    np.testing.assert_allclose(found["frequencies"], [1 / 6, 4 / 6, 1 / 6], atol=2e-3)


def test_frequencies_forget():
    journal = Journal(2)
    assert journal.frequencies() is None
    journal.batch(np.array([0]), 0.0, 0.0, None)
    assert journal.frequencies() == [1.0, 0.0]
    for _ in range(500):
        journal.batch(np.ones(10, int), 0.0, 0.0, None)
    assert journal.frequencies()[0] < 0.01


def test_used_and_skipped():
    journal = Journal(2)
    labels = np.array([0, 1])
    journal.batch(labels, 0.1, 0.0, Signals(used=0.5))
    journal.batch(labels, 0.1, 0.0, Signals())  # a method without a loss uses all
    journal.batch(labels, 0.1, 0.0, Signals(skipped=Skip(Reason.BLANK)))
    journal.batch(labels, 0.1, 0.0, Signals(skipped=Skip(Reason.COLLECTING)))  # learnt from later
    assert (journal.learnt, journal.used) == (6, 3)
    assert journal.skips == {"blank": 1, "collecting": 1}
    assert [one["used"] for one in journal.as_dict()["history"]] == [0.5, None, 0.0, None]


def test_an_estimate_of_the_accuracy_is_shown_where_there_is_one():
    journal = Journal(2)
    journal.batch(np.array([0]), 0.1, 0.002, Signals(share=0.25, stays=0.5, accuracy=Accuracy(0.7, 0.6, 0.8, None)))
    journal.batch(np.array([0]), 0.1, 0.002, Signals())
    first, second = journal.as_dict()["history"]
    assert (first["accuracy"], first["low"], first["high"]) == (0.7, 0.6, 0.8)
    assert (first["share"], first["stays"], first["latency"]) == (0.25, 0.5, 2.0)
    assert (second["accuracy"], second["low"], second["high"]) == (None, None, None)


def test_requests_answered_and_refused():
    journal = Journal(2)
    for latency in (0.01, 0.02, 0.03):
        journal.answered(latency)
    journal.refused(400)
    found = journal.as_dict()
    assert (found["requests"], found["errors"]) == (4, 1)
    assert found["latency"]["p50"] == pytest.approx(20)
