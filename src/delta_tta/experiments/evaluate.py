"""Run one method over one stream and keep what a result must say."""

from __future__ import annotations

import dataclasses
import itertools
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import delta_tta

from ..data.sets import ImageSet
from ..errors import InputError, ModelError
from ..metrics import Metrics, class_mean_accuracy
from ..models import NamedModel, Outputs
from ..normalization import Normalisation
from ..recipe import used_settings
from ..streams import DomainStream, Stream
from .trace import Statistics, Trace

SOURCE_IMAGES = 2000
"""How many images EATA's Fisher information is measured on, as its authors do."""


@dataclass(frozen=True)
class Result:
    """What one method did on one stream.

    Attributes:
        method: in its shortest form.
        stream: as the paper writes it.
        digest: of the stream's indices.
        samples: how many were predicted.
        class_mean_accuracy: 0 to 1, as all shares.
        accuracy: of all samples alike.
        ece: expected calibration error.
        prediction_std: spread of the numbers of predictions per class.
        prediction_range: most minus fewest predictions of a class.
        domains: class-mean accuracy in each domain of a stream over several; otherwise empty.
        seconds: of the whole run, data included.
        about: model, normalisation, data, batch size, settings, versions.
        trace: what happened along the stream.
    """

    method: str
    stream: str
    digest: str
    samples: int
    class_mean_accuracy: float
    accuracy: float
    ece: float
    prediction_std: float
    prediction_range: int
    domains: dict[str, float]
    seconds: float
    about: dict[str, Any]
    trace: Trace = dataclasses.field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the trace, ready for JSON."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "trace"}


def evaluate(
    named: NamedModel,
    method: str,
    data: ImageSet,
    stream: Stream | DomainStream,
    batch_size: int = 64,
    preset: str | None = None,
    *,
    on_batch: Callable[[int, Metrics], None] | None = None,
    source: ImageSet | None = None,
    watch_statistics: bool = False,
    **settings: Any,
) -> Result:
    """Adapt the model by `method` while it predicts the stream; the model is as it was afterwards.

    Args:
        named: the model, from `delta_tta.models.load`.
        method: see `delta_tta.adapt`, as are `preset` and the settings.
        data: the images; the stream must be made from its labels. A stream over domains leads through `Concat` sets.
        stream: the order of arrival; over several domains nothing is reset between them.
        batch_size: images at a time.
        preset: the paper's settings for a data set.
        on_batch: called after each batch with its size and the metrics so far.
        source: images of the training distribution, for the method "eata" alone.
        watch_statistics: keep the statistics of the first batch norm, batch by batch, in the trace.
        **settings: over the preset's.
    """
    size, name = _size_and_name(stream)
    if size != len(data):
        raise InputError(f"The stream is over {size} samples, but {data.name} has {len(data)}.")
    started = time.perf_counter()
    metrics = Metrics(_count_classes(named, data))
    model = _with_outputs(named, data)
    predicted, true = [], []
    scale = named.normalisation
    settings = {**used_settings(method, {"mean": scale.mean, "std": scale.std}), **settings}  # to augment images
    device = next(named.model.parameters()).device
    clean = None if source is None else _inputs(source, scale, batch_size, device)
    adapter = delta_tta.adapt(model, method, preset, source=clean, **settings)
    watched = Statistics(adapter) if watch_statistics else None
    try:
        for images, labels in data.batches(list(stream), batch_size):
            if watched is not None:
                watched.next_batch()
            logits = adapter(scale(images.to(device))).cpu()
            metrics.update(logits, labels)
            predicted.append(logits.argmax(1).int().numpy())
            true.append(labels.int().numpy())
            if on_batch is not None:
                on_batch(len(labels), metrics)
        signals = adapter.signals
    finally:
        statistics = watched.stop() if watched is not None else {}
        adapter.unload()
    trace = Trace(np.concatenate(predicted), np.concatenate(true), statistics)
    about = {
        **named.describe(),
        **data.describe(),
        "batch size": batch_size,
        "settings": adapter.settings.of(adapter.recipe.uses),
        "guard": {
            "refused": signals.refused,
            "rollbacks": signals.rollbacks,
            "share": signals.share,
            "stays": signals.stays,
        },
        "versions": {
            "delta-tta": delta_tta.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }
    return Result(
        method=str(adapter.recipe),
        stream=name,
        digest=stream.digest,
        samples=len(stream),
        class_mean_accuracy=metrics.class_mean_accuracy,
        accuracy=metrics.accuracy,
        ece=metrics.expected_calibration_error,
        prediction_std=metrics.prediction_std,
        prediction_range=metrics.prediction_range,
        domains=_by_domain(stream, trace),
        seconds=time.perf_counter() - started,
        about=about,
        trace=trace,
    )


def _inputs(data: ImageSet, scale: Normalisation, batch_size: int, device: torch.device) -> Iterator[Tensor]:
    """Yield up to 2,000 images in random order: sorted by class, their batch statistics would be those of a class."""
    order = np.random.default_rng(0).permutation(len(data))[:SOURCE_IMAGES]
    return (scale(images.to(device)) for images, _ in data.batches(order, batch_size))


def _count_classes(named: NamedModel, data: ImageSet) -> int:
    """Return how many classes there are; raise where the model's weights name others, or in another order.

    Numbers are no names: they count the outputs. Where the model knows all of ImageNet, the data says which it has.
    """
    names: tuple[str, ...] | None = getattr(named.model, "class_names", None)
    if names is None or (data.outputs is not None and len(names) > len(data.classes)):
        return len(data.classes)
    numbers = all(name.isdecimal() for name in data.classes) and len(data.classes) <= len(names)
    pairs = [] if numbers else itertools.zip_longest(names, data.classes)
    other = next((number for number, (own, given) in enumerate(pairs) if own != given), None)
    if other is not None:
        own, given = (repr(one[other]) if other < len(one) else "nothing" for one in (names, data.classes))
        raise ModelError(
            f"Expected {data.name} to have the {len(names)} classes of {named.weights} in their order, but class "
            f"{other} is {own} to the model and {given} in the data. Give the data these classes in this order; the "
            f"labels of a video's manifest may be their numbers, 0 to {len(names) - 1}."
        )
    return len(names)


def _with_outputs(named: NamedModel, data: ImageSet) -> nn.Module:
    """Return the model, answering with the classes of the data alone where it knows more."""
    if data.outputs is None:
        return named.model
    device = next(named.model.parameters()).device
    image, _ = next(data.batches([0], 1))
    with torch.no_grad():
        count = named.model.eval()(named.normalisation(image.to(device))).shape[1]
    if count == len(data.classes):
        return named.model
    if max(data.outputs) >= count:
        raise ModelError(
            f"{data.name} needs output {max(data.outputs)} of an ImageNet model, but {named.name} has {count} outputs "
            f"(and the data {len(data.classes)} classes)."
        )
    return Outputs(named.model, data.outputs)


def _by_domain(stream: Stream | DomainStream, trace: Trace) -> dict[str, float]:
    if isinstance(stream, Stream):
        return {}
    predicted, labels = torch.from_numpy(trace.predicted), torch.from_numpy(trace.labels)
    places = {name: torch.from_numpy(stream.which == number) for number, name in enumerate(stream.domains)}
    return {name: class_mean_accuracy(predicted[here], labels[here]) for name, here in places.items() if here.any()}


def _size_and_name(stream: Stream | DomainStream) -> tuple[int, str]:
    if isinstance(stream, Stream):
        return stream.size, str(stream.spec)
    name = f"{stream.kind} over {', '.join(stream.domains)}, each {stream.within.spec}"
    return stream.within.size * len(stream.domains), name
