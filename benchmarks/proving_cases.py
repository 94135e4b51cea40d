"""The proving ground's cells: networks, corruptions, streams and batch sizes, by size of the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from delta_tta.adapt import RECOMMENDED, WITHOUT_BATCH_NORM
from delta_tta.cli.support.options import read_value
from delta_tta.experiments.cell import CLEAN, Cell
from delta_tta.recipe import parse
from delta_tta.streams import StreamSpec
from development import Network

STREAMS = (
    StreamSpec("IS+CB"),
    StreamSpec("DS+CB", rho=1.0),
    StreamSpec("DS+CB", rho=0.1),
    StreamSpec("DS+CB", rho=0.01),
    StreamSpec("IS+CI", pi=0.05),
    StreamSpec("DS+CI", rho=0.5, pi=0.05),
)
FEW = (STREAMS[0], STREAMS[2], STREAMS[5])
EXPENSIVE, VERY = 1.5, 8.0
"""Networks of at least this cost get fewer cells and shorter streams; of the second, still fewer."""
DEFAULT = "recommended"


@dataclass(frozen=True)
class Scale:
    """How much is run.

    Attributes:
        corruptions: how many of the split; clean images always.
        streams: at B = 64.
        seeds: at B = 64.
        samples: of each stream.
        sizes: other batch sizes, on the first two corruptions and clean images, on three streams.
        single: samples of a stream of single images (B = 1), on one corruption; 0 for none.
    """

    corruptions: int
    streams: tuple[StreamSpec, ...]
    seeds: tuple[int, ...]
    samples: int
    sizes: tuple[int, ...]
    single: int

    def at(self, cost: float) -> Scale:
        """Return the scale for a network of such a cost."""
        if cost < EXPENSIVE:
            return self
        very, quick = cost >= VERY, self.corruptions <= 2
        return dataclasses.replace(
            self,
            corruptions=1 if very and quick else min(self.corruptions, 4 if self.corruptions > 4 else 2),
            streams=FEW[:2] if very or quick else FEW,
            seeds=self.seeds[:1],
            samples=min(self.samples, 320 if very else 640),
            sizes=() if quick else self.sizes if very else self.sizes[:1],
            single=self.single if very else 0,
        )


SCALES = {
    "quick": Scale(2, FEW, (2020,), 640, (16,), 0),
    "standard": Scale(4, STREAMS, (2020, 2021), 1000, (16, 200), 300),
    "full": Scale(15, STREAMS, (2020, 2021, 2022, 2023), 2000, (16, 200), 1000),
}


def with_settings(method: str) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """Return the method and the settings of "METHOD@NAME=VALUE,NAME=VALUE"."""
    name, _, given = method.partition("@")
    pairs = (pair.partition("=") for pair in given.split(",") if pair)
    return name, tuple((key, read_value(value)) for key, _, value in pairs)


@dataclass(frozen=True)
class Case:
    """One stream on one network, whatever the method."""

    network: Network
    corruption: str
    stream: StreamSpec
    batch_size: int
    samples: int

    @property
    def kind(self) -> str:
        """Whether the order tells something of the classes."""
        return "dependent" if self.stream.dependent else "shuffled"

    def cell(self, method: str) -> Cell:
        """Return the run of a method."""
        few = self.network.few if self.stream.dependent or self.stream.imbalanced else None
        name, settings = with_settings(method)
        if name == DEFAULT:
            name = RECOMMENDED if self.network.norm == "batch" else WITHOUT_BATCH_NORM
        return Cell(
            few or self.network.place,
            name,
            self.stream,
            (self.corruption,),
            batch_size=self.batch_size,
            samples=self.samples,
            settings=settings,
        )

    def __str__(self) -> str:
        corruption = "clean" if self.corruption == CLEAN else self.corruption.replace("_", " ")
        return f"{self.network.name}, {corruption}, {self.stream}, B = {self.batch_size}"


def cases(found: Sequence[Network], scale: Scale, corruptions: Sequence[str]) -> Iterator[Case]:
    """Yield everything a method meets."""
    for network in found:
        own = scale.at(network.cost)
        names = (*corruptions[: own.corruptions], CLEAN)
        for name in names:
            for stream in own.streams:
                for seed in own.seeds:
                    yield Case(network, name, dataclasses.replace(stream, seed=seed), 64, own.samples)
        for size in own.sizes:
            for name in (*names[: min(2, own.corruptions)], CLEAN):
                for stream in FEW:
                    yield Case(network, name, stream, size, own.samples)
        for stream in FEW[:2] if own.single else ():
            yield Case(network, names[0], stream, 1, own.single)


def takes(method: str, network: Network) -> bool:
    """Whether a method can run on a network."""
    name, _ = with_settings(method)
    return network.norm == "batch" or name == DEFAULT or not parse(name).needs_batch_norm
