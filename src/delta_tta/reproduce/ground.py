"""Where the paper's experiments can be run: its own data, the embedded images, or CIFAR-100 corrupted on the fly."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..bench.experiment import CLEAN, FAMILIES, Cell, Kind, Order, Place
from ..corruptions.constants import TYPES, VALIDATION
from ..data.sources import how_to_get
from ..errors import SettingError, nearest
from ..streams import StreamSpec

SEEDS = (2020, 2021, 2022, 2023)
"""The paper's."""
SLOW = ("cotta", "memo", "tta")
KINDS: Mapping[str, Kind] = {
    "cifar100": "cifar",
    "cifar100-c": "cifar-c",
    "imagenet-c": "imagenet-c",
    "imagenet-r": "imagenet-r",
    "ytbb-sub": "video",
}
"""What lies at --data."""
WEIGHTS = {
    "cifar100-c": "RobustBench (https://robustbench.github.io) publishes AugMix's as Hendrycks2020AugMix_ResNeXt, for "
    "CIFAR-100 under corruptions; `--on cifar100` has weights of its own.",
    "ytbb-sub": "Give a ResNet-18 of torchvision's, trained on its 21 classes, as .safetensors or a torch checkpoint.",
}
"""Where those come from that none come with."""


@dataclass(frozen=True)
class Ground:
    """What an experiment of the paper becomes in one place.

    Attributes:
        name: as in `--on`.
        stands_for: the data set of the paper whose numbers stand beside ours.
        place: images and model.
        batch: B of most experiments; `study` that of the studies of batch size and severity.
        study: see above.
        corruptions: over which results are averaged.
        validation: those for choosing settings.
        seeds: over which results are averaged, too.
        slow_samples: CoTTA, MEMO and TTA meet only so many samples of each stream, from its beginning; None for all.
        architectures: label → (model, weights) of Figure 4.
        words: what of the paper's setting it is.
        lacks: exhibits that cannot be had here; `only`, if not empty, names all that can.
        only: see above.
    """

    name: str
    stands_for: str
    place: Place
    batch: int
    study: int
    words: str
    corruptions: tuple[str, ...] = TYPES
    validation: tuple[str, ...] = VALIDATION
    seeds: tuple[int, ...] = SEEDS
    slow_samples: int | None = None
    architectures: tuple[tuple[str, str, str | None], ...] = ()
    lacks: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    def has(self, exhibit: str) -> bool:
        """Whether an exhibit can be had here."""
        return exhibit not in self.lacks and (not self.only or exhibit in self.only)

    def full(self) -> Ground:
        """Return it with everything: all corruptions, all seeds, all images."""
        if self.corruptions == (CLEAN,):
            return self
        return dataclasses.replace(
            self,
            corruptions=TYPES,
            validation=VALIDATION,
            seeds=SEEDS,
            slow_samples=None,
            words=f"{self.words.partition(';')[0]}; all 15 corruptions, four seeds, whole streams",
        )

    def cells(self, when: Mapping[str, Any]) -> list[Cell]:
        """Return the cells of one number: over the corruptions and the seeds, unless the conditions name them.

        Args:
            when: method, scenario (a `StreamSpec`); and where they differ from the usual, batch ("study" or a number),
                severity, corruptions, seeds, order ("continual", "mixed"), settings, statistics, model, domain (a
                corruption of which the number is, whatever the order).
        """
        batch = when.get("batch", self.batch)
        order: Order = when.get("order", "each")
        corruptions = when.get("corruptions", self.corruptions)
        if corruptions == "validation":
            corruptions = self.validation
        if "domain" in when and order == "each":  # without a reset, a domain is part of the whole
            corruptions = (when["domain"],)
        seeds = when.get("seeds", self.seeds)
        if when["scenario"].scenario == "natural":
            seeds = seeds[:1]  # there is one order
        place = self.place
        if "model" in when:
            model, weights = when["model"]
            place = dataclasses.replace(place, model=model, weights=weights)
        if order != "each" and len(corruptions) == 1:
            order = "each"  # with one corruption there is no shift
        return [
            Cell(
                place,
                when["method"],
                dataclasses.replace(when["scenario"], seed=seed),
                names,
                order,
                when.get("severity", 5),
                self.study if batch == "study" else batch,
                tuple(when.get("settings", {}).items()),
                when.get("statistics", False),
                self.slow_samples if when["method"] in SLOW else None,
            )
            for seed in seeds
            for names in ([(name,) for name in corruptions] if order == "each" else [tuple(corruptions)])
        ]


def demo(path: Path | None = None, weights: Path | None = None) -> Ground:
    """The embedded images."""
    return Ground(
        "demo",
        "CIFAR100-C",
        Place("demo", None, "resnet20-cifar10", None, "cifar10-c"),
        batch=64,
        study=64,
        words="2,000 embedded CIFAR-10 test images, ResNet-20, B = 64; gaussian noise and motion blur of the 15 "
        "corruptions, two seeds, the first 250 samples of a stream for CoTTA, MEMO and TTA",
        corruptions=("gaussian_noise", "motion_blur"),
        validation=("speckle_noise", "gaussian_blur"),
        seeds=SEEDS[:2],
        slow_samples=250,
        architectures=(("ResNet-20", "resnet20-cifar10", None),),
    )


def cifar100(path: Path | None = None, weights: Path | None = None) -> Ground:
    """Clean CIFAR-100, corrupted on the fly."""
    return Ground(
        "cifar100",
        "CIFAR100-C",
        Place("cifar", _needed("cifar100", path), "resnet20-cifar100", None, "cifar100-c"),
        batch=200,
        study=128,
        words="CIFAR-100 test images corrupted on the fly, our ResNet-20 (the paper: CIFAR100-C, ResNeXt-29); one "
        "corruption of each family (gaussian noise, motion blur, fog, jpeg), one seed; CoTTA: first 1,000 samples",
        corruptions=FAMILIES,
        seeds=SEEDS[:1],
        slow_samples=1000,
        architectures=(("ResNet-20", "resnet20-cifar100", None),),
    )


def cifar100_c(path: Path | None = None, weights: Path | None = None) -> Ground:
    """The published CIFAR-100-C."""
    there, own = _needed("cifar100-c", path), str(_given("cifar100-c", weights))
    return Ground(
        "cifar100-c",
        "CIFAR100-C",
        Place("cifar-c", there, "resnext29", own, "cifar100-c"),
        batch=200,
        study=128,
        words="CIFAR-100-C and ResNeXt-29, the paper's setting",
        architectures=(("ResNeXt-29", "resnext29", own),),
        lacks=("table-7",),  # its images are clean
    )


def imagenet_c(path: Path | None = None, weights: Path | None = None) -> Ground:
    """The published ImageNet-C."""
    own = str(weights) if weights else "IMAGENET1K_V1"
    names = ("resnet18", "resnet50", "resnet101", "wide_resnet50_2", "densenet121")
    return Ground(
        "imagenet-c",
        "ImageNet-C",
        Place("imagenet-c", _needed("imagenet-c", path), "torchvision:resnet50", own, "imagenet-c"),
        batch=64,
        study=64,
        words="ImageNet-C and torchvision's ResNet-50, the paper's setting",
        architectures=tuple((name, f"torchvision:{name}", "IMAGENET1K_V1") for name in names),
        lacks=("table-7",),
    )


def imagenet_r(path: Path | None = None, weights: Path | None = None) -> Ground:
    """The published ImageNet-R."""
    own = str(weights) if weights else "IMAGENET1K_V1"
    return Ground(
        "imagenet-r",
        "ImageNet-R",
        Place("imagenet-r", _needed("imagenet-r", path), "torchvision:resnet50", own, "imagenet-r"),
        batch=64,
        study=64,
        words="ImageNet-R and torchvision's ResNet-50, the paper's setting",
        corruptions=(CLEAN,),
        only=("table-8",),
    )


def ytbb(path: Path | None = None, weights: Path | None = None) -> Ground:
    """The frames of YTBB-sub, listed in a manifest."""
    return Ground(
        "ytbb-sub",
        "YTBB-sub",
        Place("video", _needed("ytbb-sub", path), "torchvision:resnet18", str(_given("ytbb-sub", weights)), "ytbb-sub"),
        batch=200,
        study=200,
        words="YTBB-sub in its natural order, a ResNet-18 of yours",
        corruptions=(CLEAN,),
        seeds=SEEDS[:1],
        only=("table-8", "figure-8a", "figure-8b"),
    )


GROUNDS: Mapping[str, Callable[[Path | None, Path | None], Ground]] = {
    "demo": demo,
    "cifar100": cifar100,
    "cifar100-c": cifar100_c,
    "imagenet-c": imagenet_c,
    "imagenet-r": imagenet_r,
    "ytbb-sub": ytbb,
}


def ground(name: str, path: Path | None = None, weights: Path | None = None, full: bool = False) -> Ground:
    """Return the ground of this name; `path` is where its data is, `weights` a file for its model."""
    if name not in GROUNDS:
        raise SettingError(f"Unknown ground {name!r}.{nearest(name, GROUNDS)}")
    found = GROUNDS[name](path, weights)
    return found.full() if full else found


def _needed(name: str, path: Path | None) -> str:
    if path is None:
        raise SettingError(
            f"Expected where the data for '{name}' is (--data PATH), but there is none. {how_to_get(KINDS[name])}"
        )
    return str(path)


def _given(name: str, weights: Path | None) -> Path:
    if weights is None:
        raise SettingError(
            f"Expected the weights of the network for '{name}' (--weights FILE): none come with it. {WEIGHTS[name]}"
        )
    return weights


def four() -> dict[str, StreamSpec]:
    """Return the scenarios of the ablations (tables 9 and 10)."""
    return {
        "IS+CB": StreamSpec("IS+CB"),
        "DS+CB": StreamSpec("DS+CB", rho=0.5),
        "IS+CI": StreamSpec("IS+CI", pi=0.1),
        "DS+CI": StreamSpec("DS+CI", rho=0.5, pi=0.05),
    }
