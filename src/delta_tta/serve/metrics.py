"""The metrics for Prometheus, made of the journal when they are asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from ..signals import Signals
from .service import Service
from .status import checkpoint

PREFIX = "delta_tta_"
OF_SIGNALS = {
    "entropy": "Mean entropy of the last batch that was learnt from, in nats.",
    "used": "Share of the samples of the last batch that trained.",
    "stays": "How likely the next sample is thought to be of the same class.",
    "source_share": "Share of the source statistics in the normalisation.",
    "accuracy": "Estimated accuracy.",
    "accuracy_low": "Lower end of its interval.",
    "accuracy_high": "Upper end of its interval.",
    "worse_than_source": "1 where the source itself seems to answer better, else 0.",
}


class Collector:
    """A collector of prometheus_client."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> list[Any]:
        """Nothing in advance: the numbers of the stream come with it."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield all metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        service = self._service
        journal, slots = service.journal, [place.slot for place in service.places.values()]

        def counter(name: str, text: str, value: float) -> Any:
            return CounterMetricFamily(PREFIX + name, text, value=value)

        def gauge(name: str, text: str, value: float) -> Any:
            return GaugeMetricFamily(PREFIX + name, text, value=value)

        yield counter("requests", "Requests, answered or not.", journal.requests)
        yield counter("samples", "Samples answered.", journal.samples)
        yield counter("learnt_samples", "Samples of batches that the model might learn from.", journal.learnt)
        yield counter("used_samples", "Samples of these that were learnt from.", journal.used)
        yield counter("rollbacks", "Collapses that the guard has undone.", journal.rollbacks)
        errors = CounterMetricFamily(PREFIX + "errors", "Requests not answered, by HTTP status.", labels=["status"])
        for status, count in sorted(journal.refusals.items()):
            errors.add_metric([str(status)], count)
        yield errors
        skips = CounterMetricFamily(
            PREFIX + "skipped_batches", "Batches not learnt from, by reason.", labels=["reason"]
        )
        for reason, count in sorted(journal.skips.items()):
            skips.add_metric([reason], count)
        yield skips
        for name, text, found in (
            ("latency_seconds", "From the request to the answer.", journal.latency),
            ("batch_size", "Samples in a batch.", journal.sizes),
        ):
            yield HistogramMetricFamily(PREFIX + name, text, buckets=found.buckets(), sum_value=found.sum)
        yield gauge("learning", "1 while the service learns, 0 while it is frozen.", float(service.learning))
        yield gauge("streams", "Adapters in memory.", len(slots))
        yield gauge("waiting", "Requests that wait.", sum(place.lane.waiting for place in service.places.values()))
        frequencies = journal.frequencies()
        if frequencies is not None:
            shares = GaugeMetricFamily(
                PREFIX + "class_frequency", "Share of a class in the last answers.", labels=["class"]
            )
            for number, share in enumerate(frequencies):
                shares.add_metric([str(number)], share)
            yield shares
        for name, text in OF_SIGNALS.items():
            values = [(slot.identity, _values(slot.signals).get(name)) for slot in slots if slot.signals is not None]
            family = GaugeMetricFamily(PREFIX + name, text, labels=["stream"])
            for stream, value in values:
                if value is not None:
                    family.add_metric([stream], value)
            if family.samples:
                yield family
        if service.options.folder is not None:
            kept = checkpoint(slots, time.time())
            yield counter("checkpoint_failures", "Attempts to save a state that failed.", kept["failures"])
            yield gauge("checkpoint_failing", "1 while states cannot be saved.", float(kept["error"] is not None))
            if kept["age"] is not None:
                yield gauge(
                    "checkpoint_age_seconds", "Since the last checkpoint, the oldest of all streams.", kept["age"]
                )


def _values(signals: Signals) -> dict[str, float | None]:
    accuracy = signals.accuracy
    return {
        "entropy": signals.entropy,
        "used": signals.used,
        "stays": signals.stays,
        "source_share": None if signals.share is None else 1 - signals.share,
        "accuracy": None if accuracy is None else accuracy.estimate,
        "accuracy_low": None if accuracy is None else accuracy.low,
        "accuracy_high": None if accuracy is None else accuracy.high,
        "worse_than_source": None if signals.worse_than_source is None else float(signals.worse_than_source),
    }


def exposition(collector: Any, accept: str) -> tuple[bytes, str]:
    """Return the metrics of a collector as text, and its content type."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    encode, kind = choose_encoder(accept)
    return encode(registry), kind
