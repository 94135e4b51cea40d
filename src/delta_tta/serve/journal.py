"""What the service remembers about its work: for the status, the page and the metrics. Safe from several threads."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..signals import Reason, Signals
from .inference import Array

LATENCIES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MEMORY = 1000
"""Samples over which class frequencies are averaged."""


class Histogram:
    """Counts by bucket."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """Return how many values are at most each bound, as Prometheus wants them."""
        totals = np.cumsum(self.counts).tolist()
        names = [*(str(float(bound)) for bound in self.bounds), "+Inf"]
        return list(zip(names, totals, strict=True))


@dataclass(frozen=True)
class Batch:
    """One answered batch; None where there is no such number.

    Attributes:
        time: when it was answered, Unix time.
        samples: samples answered by then, over all streams.
        entropy: mean entropy of the answers, in nats.
        used: share of its samples that trained.
        batch: its samples.
        latency: from request to answer, of its oldest request, in ms.
        share: share of the stream's statistics.
        stays: how likely the next sample is thought to be of the same class.
        accuracy: estimated accuracy, and the ends of its interval.
        low: the lower end.
        high: the upper end.
    """

    time: float
    samples: int
    entropy: float | None
    used: float | None
    batch: int
    latency: float
    share: float | None
    stays: float | None
    accuracy: float | None
    low: float | None
    high: float | None


class Journal:
    """Counts, the last batches, the last answers and the last events."""

    def __init__(self, classes: int) -> None:
        self.started = time.time()
        self.requests = self.errors = self.samples = self.rollbacks = 0
        self.used = 0.0
        self.learnt = 0
        self.refusals: Counter[int] = Counter()
        self.skips: Counter[str] = Counter()
        self.latency, self.sizes = Histogram(LATENCIES), Histogram(SIZES)
        self._history: deque[Batch] = deque(maxlen=600)
        self._answers: deque[int] = deque(maxlen=600)
        self._events: deque[dict[str, Any]] = deque(maxlen=50)
        self._latencies: deque[float] = deque(maxlen=1000)
        self._frequencies = np.zeros(classes)
        self._weight = 0.0
        self._lock = threading.Lock()

    def event(self, kind: str, text: str) -> None:
        """Note what happened."""
        with self._lock:
            self._events.append({"time": time.time(), "kind": kind, "text": text})

    def answered(self, latency: float) -> None:
        """Count a request that was answered after so many seconds."""
        with self._lock:
            self.requests += 1
            self.latency.add(latency)
            self._latencies.append(1000 * latency)

    def refused(self, status: int) -> None:
        """Count a request that was not answered."""
        with self._lock:
            self.requests += 1
            self.errors += 1
            self.refusals[status] += 1

    def batch(self, labels: Array, entropy: float, latency: float, signals: Signals | None) -> None:
        """Count a batch; `signals` where it was learnt from."""
        size = len(labels)
        with self._lock:
            self.samples += size
            self.sizes.add(size)
            self._answers.extend(labels[-600:].tolist())
            keep = (1 - 1 / MEMORY) ** size
            counts = np.bincount(labels, minlength=len(self._frequencies))
            self._frequencies = keep * self._frequencies + (1 - keep) * counts / size
            self._weight = keep * self._weight + 1 - keep
            used = None
            if signals is not None:
                used = signals.used
                if signals.skipped is not None:
                    self.skips[signals.skipped.reason.name.lower()] += 1
                    used = 0.0 if used is None else used
                if signals.skipped is not None and signals.skipped.reason is Reason.COLLECTING:
                    used = None  # they are learnt from later
                else:
                    self.learnt += size
                    self.used += size * (1.0 if used is None else used)
            accuracy = None if signals is None else signals.accuracy
            self._history.append(
                Batch(
                    time=time.time(),
                    samples=self.samples,
                    entropy=entropy,
                    used=used,
                    batch=size,
                    latency=1000 * latency,
                    share=getattr(signals, "share", None),
                    stays=getattr(signals, "stays", None),
                    accuracy=None if accuracy is None else accuracy.estimate,
                    low=None if accuracy is None else accuracy.low,
                    high=None if accuracy is None else accuracy.high,
                )
            )

    def last(self) -> Batch | None:
        """Return the last batch."""
        with self._lock:
            return self._history[-1] if self._history else None

    def frequencies(self) -> list[float] | None:
        """Return the share of each class among the last answers; None before the first."""
        with self._lock:
            return (self._frequencies / self._weight).tolist() if self._weight else None

    def as_dict(self) -> dict[str, Any]:
        """Return the part of the status that is kept here."""
        frequencies = self.frequencies()
        with self._lock:
            recent = np.percentile(self._latencies, [50, 95]).tolist() if self._latencies else [None, None]
            return {
                "started": self.started,
                "requests": self.requests,
                "errors": self.errors,
                "samples": self.samples,
                "latency": dict(zip(("p50", "p95"), recent, strict=True)),
                "rollbacks": self.rollbacks,
                "history": [asdict(batch) for batch in self._history],
                "answers": list(self._answers),
                "frequencies": frequencies,
                "events": list(self._events),
            }
