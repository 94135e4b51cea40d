"""Methods × streams on one model and one data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import recipe
from ..data.sets import ImageSet
from ..metrics import Metrics
from ..models import NamedModel
from ..settings import make_settings
from ..streams import Stream, StreamSpec, stream
from .evaluate import Result, evaluate
from .experiment import SCENARIOS

Watch = Callable[[str, StreamSpec, int, Metrics], None]


def compare(
    named: NamedModel,
    data: ImageSet,
    methods: Sequence[str],
    scenarios: Sequence[StreamSpec] = SCENARIOS,
    batch_size: int = 64,
    preset: str | None = None,
    watch: Watch | None = None,
    source: ImageSet | None = None,
    **settings: Any,
) -> Iterator[Result]:
    """Yield one result a method and scenario, as each is done; wrong names are refused before anything runs.

    Args:
        named: see `evaluate`, as are `data`, `batch_size`, `preset` and the settings.
        data: the images.
        methods: in the paper's notation.
        scenarios: the streams to make.
        batch_size: images at a time.
        preset: the paper's settings for a data set.
        watch: called after each batch with method, scenario, size of the batch and the metrics so far.
        source: see `evaluate`.
        **settings: over the preset's.
    """
    for method in methods:
        recipe.parse(method)
    make_settings(preset, settings)
    streams = [_stream(data, spec) for spec in scenarios]
    for method in methods:
        for one in streams:

            def on_batch(size: int, metrics: Metrics, method: str = method, spec: StreamSpec = one.spec) -> None:
                if watch is not None:
                    watch(method, spec, size, metrics)

            yield evaluate(named, method, data, one, batch_size, preset, on_batch, source, **settings)


def samples(data: ImageSet, scenarios: Sequence[StreamSpec] = SCENARIOS) -> int:
    """Return how many samples one method meets in these scenarios (an imbalanced stream draws its own number)."""
    return sum(len(_stream(data, spec)) for spec in scenarios)


def _stream(data: ImageSet, spec: StreamSpec) -> Stream:
    return stream(data.labels, spec.scenario, rho=spec.rho, pi=spec.pi, seed=spec.seed, pieces=spec.pieces)
