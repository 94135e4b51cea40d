"""Status and metrics of several replicas as those of one service."""

import pytest

from delta_tta.serve.merging import Merged, merged_status


def status(**changes):
    values = {
        "model": {"name": "net", "classes": 2}, "now": 100.0, "learning": True, "locked": False, "started": 50.0,
        "requests": 10, "errors": 1, "samples": 40, "latency": {"p50": 2.0, "p95": 5.0}, "rollbacks": 0,
        "history": [{"time": 10.0}, {"time": 30.0}], "answers": [0, 1], "frequencies": [0.25, 0.75],
        "events": [{"time": 51.0, "text": "start"}], "streams": [{"id": "a"}],
        "checkpoint": {"age": 3.0, "step": 7, "failures": 1, "error": None},
    }  # fmt: skip
    return {**values, **changes}


def test_one_alone_is_what_it_was():
    alone = status()
    assert merged_status([alone]) == alone


def test_counts_are_added_and_the_worst_is_shown():
    other = status(
        started=40.0, learning=False, requests=5, errors=2, samples=120, rollbacks=1, latency={"p50": 1.0, "p95": 9.0},
        history=[{"time": 20.0}], answers=[1], frequencies=[1.0, 0.0], events=[{"time": 45.0, "text": "start"}],
        streams=[{"id": "b"}], checkpoint={"age": 8.0, "step": 2, "failures": 4, "error": "disk full"},
    )  # fmt: skip
    found = merged_status([status(), other])
    assert (found["requests"], found["errors"], found["samples"], found["rollbacks"]) == (15, 3, 160, 1)
    assert (found["started"], found["learning"]) == (40.0, True)
    assert found["latency"] == {"p50": 2.0, "p95": 9.0}
    assert found["checkpoint"] == {"age": 8.0, "step": 7, "failures": 5, "error": "disk full"}
    assert [one["time"] for one in found["history"]] == [10.0, 20.0, 30.0]
    assert [one["time"] for one in found["events"]] == [45.0, 51.0]
    assert found["streams"] == [{"id": "a"}, {"id": "b"}]
    assert found["answers"] == [0, 1, 1]
    assert found["frequencies"] == pytest.approx([(40 * 0.25 + 120) / 160, 40 * 0.75 / 160])  # by samples


def test_a_replica_that_has_answered_nothing_counts_for_nothing():
    fresh = status(samples=0, frequencies=None, latency={"p50": None, "p95": None}, checkpoint=None)
    found = merged_status([fresh, status()])
    assert found["frequencies"] == [0.25, 0.75]
    assert found["latency"] == {"p50": 2.0, "p95": 5.0}
    assert found["checkpoint"]["age"] == 3.0
    nothing = merged_status([fresh, fresh])
    assert nothing["frequencies"] is None
    assert nothing["latency"]["p50"] is nothing["checkpoint"]["age"] is None


def test_the_lists_stay_bounded():
    long = status(history=[{"time": float(t)} for t in range(600)], answers=list(range(600)),
                  events=[{"time": float(t)} for t in range(50)])  # fmt: skip
    found = merged_status([long, long])
    assert [len(found[name]) for name in ("history", "answers", "events")] == [600, 600, 50]
    assert found["history"][0]["time"] == 300
    assert found["answers"][0] == 300


def test_metrics_have_the_number_of_their_replica():
    core = pytest.importorskip("prometheus_client.core")

    def families(value):
        yield core.GaugeMetricFamily("learning", "Whether it learns.", value=value)

    (merged,) = Merged([list(families(1)), list(families(0))]).collect()
    assert (merged.name, merged.documentation, merged.type) == ("learning", "Whether it learns.", "gauge")
    assert [(one.labels, one.value) for one in merged.samples] == [({"replica": "0"}, 1), ({"replica": "1"}, 0)]
