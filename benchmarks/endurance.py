"""What an endurance run measures, and what of it is out of bounds."""

from __future__ import annotations

import hashlib
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import delta_tta

POINTS = 200
"""How often the slow measurements (memory, averages) are made in a run."""
NEAR, FAR = 0.01, 1000.0
"""How many times the source's a moving average may be; with no variance left, σ is √eps, about 0.003."""
MAX_Z_ERROR = 1e-4


@dataclass
class Tenth:
    """One tenth of a run."""

    batches: int
    memory: float
    step: float  # median of the processor's time, seconds
    right: float
    source: float
    skipped: int


@dataclass
class Report:
    """What a run showed; plain numbers."""

    tenths: list[Tenth] = field(default_factory=list)
    memory: list[tuple[int, float]] = field(default_factory=list)  # batches so far, MB
    z_error: float = 0.0
    std: tuple[float, float] = (math.inf, 0.0)
    mean: tuple[float, float] = (math.inf, 0.0)
    wrong_answers: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    answers: str = ""
    state: str = ""
    seconds: float = 0.0

    @property
    def slope(self) -> float:
        """MB per 10,000 batches: the line of least squares, after the first tenth."""
        batches, memory = np.array(self.memory[len(self.memory) // 10 :]).T
        return float(np.polyfit(batches / 10_000, memory, 1)[0])


def resident() -> float:
    """Return the memory of this process in MB; where only the peak is known, the peak."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def digest(state: dict[str, Any]) -> str:
    """Return the sha256 of every number in a nested state."""
    total = hashlib.sha256()

    def add(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                add(value[key], f"{path}.{key}")
        elif isinstance(value, Tensor):
            total.update(f"{path} {value.dtype} {tuple(value.shape)}".encode())
            total.update(value.contiguous().numpy().tobytes())
        else:
            total.update(f"{path} {value!r}".encode())

    add(state, "")
    return total.hexdigest()


def watch(
    adapter: delta_tta.Adapter, source: nn.Module, stream: Callable[[int], tuple[Tensor, Tensor]], batches: int
) -> Report:
    """Run the adapter over a stream, which gives (images, labels) of batch i.

    Args:
        adapter: as adapt() made it.
        source: the network as it was before.
        stream: asked in order.
        batches: how many.
    """
    report, answers, reasons = Report(), hashlib.sha256(), Counter[str]()
    scales = {
        name: (layer.running_mean.abs(), (layer.running_var + layer.eps).sqrt())
        for name, layer in source.named_modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm)
    }
    # everything a batch leaves behind is written into place, so that what grows is the adapter's
    times, right, right_before, skipped, samples = np.full((5, batches), np.nan)
    started = time.perf_counter()
    for i in range(batches):
        images, labels = stream(i)
        start = time.process_time()  # not the wall's: other programs of the machine come and go in so long a run
        logits = adapter(images)
        times[i] = time.process_time() - start
        signals = adapter.signals
        answers.update(logits.numpy().tobytes())
        report.wrong_answers += not bool(logits.isfinite().all())
        skipped[i] = signals.skipped is not None
        if signals.skipped is not None:
            reasons[re.sub(r"\d+", "n", signals.skipped)] += 1
        if signals.frequencies is not None:
            report.z_error = _worst(report.z_error, abs(float(signals.frequencies.double().sum()) - 1))
        samples[i], right[i] = len(labels), int((logits.argmax(1) == labels).sum())
        with torch.no_grad():
            right_before[i] = int((source(images).argmax(1) == labels).sum())
        if (i + 1) % max(batches // POINTS, 1) == 0:
            report.memory.append((i + 1, resident()))
            _measure(adapter, scales, report)
    report.seconds = time.perf_counter() - started
    report.skipped, report.answers, report.state = dict(reasons), answers.hexdigest(), digest(adapter.state_dict())
    for part in np.array_split(np.arange(batches), 10):
        last = next(memory for done, memory in reversed(report.memory) if done <= part[-1] + 1)
        count = samples[part].sum()
        shares = (right[part].sum() / count, right_before[part].sum() / count)
        report.tenths.append(
            Tenth(len(part), last, float(np.median(times[part])), *map(float, shares), int(skipped[part].sum()))
        )
    return report


def _measure(adapter: delta_tta.Adapter, scales: dict[str, tuple[Tensor, Tensor]], report: Report) -> None:
    """Compare the moving averages with the source's: σ_e / σ, and |μ_e| / (|μ| + σ), as μ may be 0."""
    for name, now in adapter.state_dict()["statistics"].items():
        mean, std = scales[name]
        for what, ratio in (("std", now["std"] / std), ("mean", now["mean"].abs() / (mean + std))):
            low, high = getattr(report, what)
            setattr(report, what, (-_worst(-low, -float(ratio.min())), _worst(high, float(ratio.max()))))


def _worst(before: float, now: float) -> float:
    """Return the larger; what is not a number is the worst of all."""
    return now if math.isnan(now) else max(before, now)


def complaints(report: Report, max_slope: float) -> Iterator[str]:
    """Say what of it is out of bounds."""
    if not report.slope <= max_slope:
        yield f"Memory grows by {report.slope:.3g} MB per 10,000 batches; expected at most {max_slope:g}."
    if report.wrong_answers:
        yield f"{report.wrong_answers} answers are not finite; expected none."
    if not report.z_error <= MAX_Z_ERROR:
        yield f"DOT's frequencies miss the sum 1 by {report.z_error:.3g}; expected at most {MAX_Z_ERROR:g}."
    if report.std[1]:  # the method has moving averages
        if not (report.std[0] >= NEAR and report.std[1] <= FAR):
            far = " and ".join(f"{ratio:.3g}" for ratio in report.std)
            yield f"Moving deviations went to {far} times the source's; expected {NEAR:g} to {FAR:g}."
        if not report.mean[1] <= FAR:
            yield f"Moving means went to {report.mean[1]:.3g} times the source's; expected at most {FAR:g}."


def differences(first: Report, second: Report) -> Iterator[str]:
    """Say in what two runs differ that should be the same."""
    if first.answers != second.answers:
        yield "The second run gave other answers than the first; expected the same bits."
    if first.state != second.state:
        yield "The second run ended in another state than the first; expected the same bits."
