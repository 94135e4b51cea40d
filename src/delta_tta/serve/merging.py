"""Status and metrics of several replicas as those of one service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def merged_status(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one status of several: counts added up, the latest batches and events of all, the worst checkpoint."""
    history = sorted((one for status in found for one in status["history"]), key=lambda one: one["time"])[-600:]
    samples = sum(status["samples"] for status in found)
    known = [status for status in found if status["frequencies"] is not None]
    weight = sum(status["samples"] for status in known) or 1
    kept = [status["checkpoint"] for status in found if status["checkpoint"] is not None]
    return {
        **found[0],
        "started": min(status["started"] for status in found),
        "learning": any(status["learning"] for status in found),
        **{name: sum(status[name] for status in found) for name in ("requests", "errors", "rollbacks")},
        "samples": samples,
        "latency": {name: _most(status["latency"][name] for status in found) for name in ("p50", "p95")},
        "checkpoint": {
            "age": _most(one["age"] for one in kept),
            "step": _most(one["step"] for one in kept),
            "failures": sum(one["failures"] for one in kept),
            "error": next((one["error"] for one in kept if one["error"] is not None), None),
        },
        "streams": [one for status in found for one in status["streams"]],
        "history": history,
        "answers": [one for status in found for one in status["answers"][-600 // len(found) :]],
        "frequencies": [
            sum(status["frequencies"][label] * status["samples"] for status in known) / weight
            for label in range(found[0]["model"]["classes"])
        ]
        if known
        else None,
        "events": sorted((one for status in found for one in status["events"]), key=lambda one: one["time"])[-50:],
    }


def _most(values: Any) -> Any:
    return max((value for value in values if value is not None), default=None)


class Merged:
    """A collector of prometheus_client: the metrics of all replicas, each with the replica's number as a label."""

    def __init__(self, replicas: Sequence[Sequence[Any]]) -> None:
        self._replicas = replicas

    def collect(self) -> Iterator[Any]:
        """Yield each metric once."""
        from prometheus_client.core import Metric

        merged: dict[str, Any] = {}
        for number, families in enumerate(self._replicas):
            for family in families:
                here = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    here.add_sample(sample.name, {**sample.labels, "replica": str(number)}, sample.value)
        yield from merged.values()
