"""Runs cells in one process: loads images and models once, and knows what determines a result."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import data, models, recipe
from ..data.sets import ImageSet
from ..errors import SettingError
from ..files import digest, fingerprint
from ..metrics import Metrics
from ..settings import COMMON, Settings
from ..streams import DomainStream, Stream, continual, mixed, stream
from .cell import CLEAN, Cell
from .evaluate import Result, evaluate
from .place import Place

PROTOCOL = 4
"""Raised when the same cell no longer means the same result, as when a default changes: then it is run again."""


class Lab:
    """What cells need, kept from one to the next; corrupted images lie in `cache`, shared by all processes."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self._clean: dict[Place, ImageSet] = {}
        self._sets: dict[tuple[Place, str, int], ImageSet] = {}
        self._models: dict[tuple[object, ...], tuple[models.NamedModel, str]] = {}
        self._streams: dict[tuple[object, ...], Stream | DomainStream] = {}
        self._prints: dict[tuple[Place, str, int], str] = {}

    def clean(self, place: Place) -> ImageSet:
        """Return the uncorrupted images; raise for data that has none."""
        if place not in self._clean:
            self._clean[place] = _subset(_clean(place), place)
        return self._clean[place]

    def images(self, place: Place, corruption: str, severity: int) -> ImageSet:
        """Return the images of one corruption; what is corrupted on the fly is made once and kept on disk."""
        where = (place, corruption, severity)
        if where not in self._sets:
            found = self.described(*where)
            self._sets[where] = data.on_disk(found, self.cache) if isinstance(found, data.Corrupted) else found
        return self._sets[where]

    def described(self, place: Place, corruption: str, severity: int) -> ImageSet:
        """Return the set, with nothing made yet."""
        if place.data in ("cifar-c", "imagenet-c") and corruption != CLEAN:
            assert place.path is not None
            read = data.cifar_c if place.data == "cifar-c" else data.imagenet_c
            return _subset(read(place.path, corruption, severity), place)
        if corruption == CLEAN:
            return self.clean(place)
        if place.data in ("imagenet-r", "video"):
            raise SettingError(
                f"The data {place.data!r} has no corruptions to choose: expected the corruption '{CLEAN}'."
            )
        return data.Corrupted(self.clean(place), corruption, severity)

    def model(self, place: Place) -> models.NamedModel:
        """Return the model; `evaluate` leaves it as it was."""
        return self._model(place)[0]

    def _model(self, place: Place) -> tuple[models.NamedModel, str]:
        where = (place.model, place.weights, place.mean, place.std)
        if where not in self._models:
            named = models.load(place.model, place.weights, mean=place.mean, std=place.std)
            file, colon, _ = place.model.rpartition(":")
            program = Path(file).read_text(encoding="utf-8") if colon and file.endswith(".py") else ""
            arrays = [value.detach().cpu().numpy() for value in named.model.state_dict().values()]
            about = (str(named.normalisation), repr(named.model), program, *named.model.state_dict())
            self._models[where] = (named, fingerprint(*about, *arrays))
            if not torch.cuda.is_available():  # on a CPU most networks run faster in this layout
                # torch does not type memory_format
                named.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return self._models[where]

    def stream(self, cell: Cell) -> Stream | DomainStream:
        """Return the order of arrival."""
        where = (cell.place, cell.corruptions, cell.order, cell.stream, cell.samples, cell.passes)
        if where not in self._streams:
            self._streams[where] = self._stream(cell)
        return self._streams[where]

    def _stream(self, cell: Cell) -> Stream | DomainStream:
        images = self.described(cell.place, cell.corruptions[0], cell.severity)
        spec, videos = cell.stream, getattr(images, "videos", None)
        within = stream(
            np.unique(images.labels, return_inverse=True)[1],  # classes without a sample have no place in a stream
            spec.scenario,
            rho=spec.rho,
            pi=spec.pi,
            seed=spec.seed,
            pieces=spec.pieces,
            groups=videos,
        )
        if cell.samples is not None:
            within = Stream(within.spec, within.indices[: cell.samples], within.size)
        if cell.passes > 1:
            within = Stream(within.spec, np.tile(within.indices, cell.passes), within.size)
        if cell.order == "each":
            return within
        if cell.order == "continual":
            return continual(within, cell.corruptions)
        return mixed(within, cell.corruptions, spec.seed)

    def identity(self, cell: Cell) -> dict[str, Any]:
        """Return everything that determines the cell's result; where files lie is not of it, what is in them is."""
        return {
            "protocol": PROTOCOL,
            "images": [self._print(cell.place, name, cell.severity) for name in cell.corruptions],
            "source images": self._print(cell.place, CLEAN, cell.severity) if needs_source(cell) else None,
            "model": self._model(cell.place)[1],
            "method": cell.method,
            "settings": _unusual(cell),
            "stream": str(cell.stream),
            "digest": self.stream(cell).digest,
            "order": cell.order,
            "batch size": cell.batch_size,
            "statistics": cell.statistics,
        }

    def key(self, cell: Cell) -> str:
        """Return the identity as 32 hex digits."""
        return digest(json.dumps(self.identity(cell), sort_keys=True), 32)

    def _print(self, place: Place, corruption: str, severity: int) -> str:
        where = (place, corruption, severity)
        if where not in self._prints:
            self._prints[where] = self.described(*where).fingerprint()
        return self._prints[where]

    def run(self, cell: Cell, on_batch: Callable[[int, Metrics], None] | None = None) -> Result:
        """Run one cell."""
        sets = [self.images(cell.place, name, cell.severity) for name in cell.corruptions]
        source = self.clean(cell.place) if needs_source(cell) else None
        identity, named, order = self.identity(cell), self.model(cell.place), self.stream(cell)
        return run_cell(cell, named, sets, order, source=source, identity=identity, on_batch=on_batch)


def run_cell(
    cell: Cell,
    named: models.NamedModel,
    sets: Sequence[ImageSet],
    order: Stream | DomainStream,
    *,
    source: ImageSet | None,
    identity: Mapping[str, Any],
    on_batch: Callable[[int, Metrics], None] | None = None,
) -> Result:
    """Run a cell with everything it needs at hand, on a GPU where there is one."""
    images = sets[0] if cell.order == "each" else data.Concat(sets)
    named.model.to("cuda" if torch.cuda.is_available() else "cpu")
    result = evaluate(
        named,
        cell.method,
        images,
        order,
        batch_size=cell.batch_size,
        preset=cell.place.preset,
        on_batch=on_batch,
        source=source,
        watch_statistics=cell.statistics,
        **dict(cell.settings),
    )
    return dataclasses.replace(result, about={**result.about, "identity": dict(identity)})


def _unusual(cell: Cell) -> dict[str, Any]:
    """Return the settings that are not the defaults: so a setting that is added later changes no key."""
    usual, settings = Settings(), cell.spelled_out
    common = {name: value for name in COMMON if (value := getattr(settings, name)) != getattr(usual, name)}
    found = {**common, **dict(settings.extra)}
    return {name: value for name, value in found.items() if name not in ("background", "estimate")}


def needs_source(cell: Cell) -> bool:
    """Whether the method looks at images of the training distribution."""
    return any(one.needs_source for one in recipe.parse(cell.method).classes)


def _clean(place: Place) -> ImageSet:
    if place.data == "demo":
        return data.demo()
    assert place.path is not None
    if place.data == "cifar":
        return data.cifar(place.path)
    if place.clean is not None:
        return data.cifar(place.clean) if place.data == "cifar-c" else data.folder(place.clean)
    if place.data == "folder":
        return data.folder(place.path, size=None)
    if place.data == "imagenet-r":
        return data.imagenet_r(place.path)
    if place.data == "video":
        return data.video(place.path)
    raise SettingError(
        f"The data {place.data!r} holds corrupted images alone. Say where clean ones are (`clean`, --clean), or name "
        "the corruptions."
    )


def _subset(images: ImageSet, place: Place) -> ImageSet:
    if place.images is None or place.images >= len(images):
        return images
    return data.Subset(images, place.images)
