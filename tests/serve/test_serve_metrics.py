"""Metrics and status: what they hold, and that the dashboard and the page ask for nothing else."""

import json
import re
from pathlib import Path

import pytest
import torch
from servers import NAME, Server

from nets import CLASSES, batches

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve")]
ROOT = Path(__file__).parents[2]
OF_OTHERS = {
    *("delta_tta_accuracy", "delta_tta_accuracy_low", "delta_tta_accuracy_high", "delta_tta_worse_than_source"),
    "delta_tta_used",
}
"""There only where the method estimates its accuracy, or has a loss."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Metrics and status after some batches, good and bad."""
    with Server("--checkpoints", tmp_path_factory.mktemp("states"), "--every", 3, "--set", "update=every") as server:
        for x in batches(5):
            server.infer(x, stream="a")
        server.infer(batches(1)[0], learn=False)
        server.infer(torch.full((12, 3, 8, 8), 1e7))
        server.ask("POST", f"/v2/models/{NAME}/infer", b"{")
        server.control("snapshot")
        yield server.metrics(), server.status()


def names(metrics):
    return {re.match(r"[a-z_]+", name)[0] for name in metrics}


def test_what_is_counted(seen):
    metrics, _ = seen
    assert metrics["delta_tta_requests_total"] == 8
    assert metrics['delta_tta_errors_total{status="400"}'] == 1
    assert metrics["delta_tta_samples_total"] == metrics["delta_tta_batch_size_sum"] == 7 * 12
    assert metrics["delta_tta_latency_seconds_count"] == 7
    assert metrics['delta_tta_latency_seconds_bucket{le="+Inf"}'] == 7
    assert metrics['delta_tta_batch_size_bucket{le="8.0"}'] == 0
    assert metrics['delta_tta_batch_size_bucket{le="16.0"}'] == 7
    assert metrics["delta_tta_learnt_samples_total"] == 6 * 12
    assert metrics["delta_tta_used_samples_total"] == 5 * 12
    assert metrics['delta_tta_skipped_batches_total{reason="out_of_proportion"}'] == 1
    assert metrics["delta_tta_rollbacks_total"] == 0
    assert metrics["delta_tta_checkpoint_failures_total"] == 0
    shares = [metrics[f'delta_tta_class_frequency{{class="{one}"}}'] for one in range(CLASSES)]
    assert sum(shares) == pytest.approx(1)
    for name in ("stays", "source_share", "entropy"):
        assert metrics[f'delta_tta_{name}{{stream="shared"}}'] >= 0


def test_the_status_is_as_the_page_wants_it(seen):
    _, status = seen
    assert set(status) == {
        *("model", "started", "now", "learning", "locked", "requests", "errors", "samples", "latency", "rollbacks"),
        *("checkpoint", "streams", "history", "answers", "frequencies", "events"),
    }
    assert status["model"]["name"] == NAME
    assert status["model"]["method"] == "anchored+sticky"
    assert status["model"]["network"] == "Sequential"
    assert status["model"]["classes"] == CLASSES
    assert "source" in status["model"]["words"]
    assert status["requests"] == 8
    assert status["errors"] == 1
    assert status["samples"] == len(status["answers"]) == 84
    assert 0 < status["latency"]["p50"] <= status["latency"]["p95"]
    assert status["checkpoint"]["step"] == 6
    assert status["checkpoint"]["error"] is None
    (stream,) = status["streams"]
    assert (stream["id"], stream["samples"], stream["batches"]) == ("shared", 84, 7)
    assert [batch["samples"] for batch in status["history"]] == [12 * n for n in range(1, 8)]
    assert set(status["history"][0]) == {
        *("time", "samples", "entropy", "used", "batch", "latency", "share", "stays", "accuracy", "low", "high")
    }
    assert status["history"][5]["used"] is None  # it was not to be learnt from
    assert status["history"][6]["used"] == 0
    assert [event["kind"] for event in status["events"]] == ["start", "skip", "snapshot"]
    assert sum(status["frequencies"]) == pytest.approx(1)


def test_each_metric_of_the_dashboard_and_of_the_page_exists(seen):
    metrics, _ = seen
    dashboard = json.loads((ROOT / "examples/serve/grafana.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    shown = set(re.findall(r"delta_tta_\w+", " ".join(asked)))
    documented = set(re.findall(r"`(delta_tta_\w+)`", (ROOT / "docs/serve.md").read_text()))
    bare = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names(metrics)}
    assert len(shown) > 15
    assert shown - names(metrics) == OF_OTHERS
    assert documented - names(metrics) - bare == OF_OTHERS
    assert bare - documented == set()
