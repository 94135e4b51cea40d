"""Where the paper's experiments can be run: its own data, the embedded images, or CIFAR-100 corrupted on the fly."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..corruptions.constants import TYPES, VALIDATION
from ..errors import SettingError, nearest
from ..experiments.cell import CLEAN, Cell, Order
from ..experiments.experiment import FAMILIES
from ..experiments.place import Place
from ..recipe import parse
from ..streams import StreamSpec
from .user_inputs import UserInputs, cifar_model, data_of, weights_of

SEEDS = (2020, 2021, 2022, 2023)
"""The four that the paper names in Table 13; how many runs its other tables average is not said. We take these."""
SLOW = ("cotta", "memo", "tta")


@dataclass(frozen=True)
class Benchmark:
    """What an experiment of the paper becomes in one place.

    Attributes:
        name: as in `--on`.
        stands_for: the data set of the paper whose numbers stand beside the results.
        place: images and model.
        batch: B of most experiments; `study` that of the studies of batch size and severity.
        study: see above.
        corruptions: over which results are averaged.
        validation: those for choosing settings.
        seeds: over which results are averaged.
        slow_samples: how many samples of each stream CoTTA, MEMO and TTA get, from its beginning; None for all.
        architectures: label → (model, weights) of Figure 4.
        setting: images and network in words; "{network}" stands for the name of the network.
        network: what the network is called.
        extent: which corruptions, seeds and samples, where they are not all of the paper's.
        samples: how many samples of each stream every method gets, to try a command out; None for all.
        without: methods that are left out.
    """

    name: str
    stands_for: str
    place: Place
    batch: int
    study: int
    setting: str
    network: str = ""
    extent: str = ""
    corruptions: tuple[str, ...] = TYPES
    validation: tuple[str, ...] = VALIDATION
    seeds: tuple[int, ...] = SEEDS
    slow_samples: int | None = None
    architectures: tuple[tuple[str, str, str | None], ...] = ()
    samples: int | None = None
    without: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """What of the paper's setting it is."""
        first = "" if self.samples is None else f"the first {self.samples} samples of a stream"
        without = f"without {', '.join(self.without)}" if self.without else ""
        return "; ".join(filter(None, [self.setting.format(network=self.network), self.extent, first, without]))

    @property
    def corrupted(self) -> bool:
        """Whether its images come in several corruptions."""
        return self.corruptions != (CLEAN,)

    @property
    def has_clean(self) -> bool:
        """Whether clean images of the same kind are at hand."""
        return self.place.data in ("demo", "cifar") or self.place.clean is not None

    def full(self) -> Benchmark:
        """Return it with everything: all corruptions, all seeds, all images."""
        if not self.corrupted:
            return self
        return dataclasses.replace(
            self,
            corruptions=TYPES,
            validation=VALIDATION,
            seeds=SEEDS,
            slow_samples=None,
            extent="all 15 corruptions, four seeds, whole streams",
        )

    def leaves_out(self, when: Mapping[str, Any]) -> bool:
        """Whether the method that the conditions name is left out."""
        return bool(self.without) and str(parse(when.get("method", "source"))) in self.without

    def cells(self, when: Mapping[str, Any]) -> list[Cell]:
        """Return the cells of one number: over the corruptions and the seeds, unless the conditions name them.

        Args:
            when: method, scenario (a `StreamSpec`); and where they differ from the usual, batch ("study" or a number),
                severity, corruptions, seeds, order ("continual", "mixed"), settings, statistics, model, domain (a
                corruption of which the number is, in any order).
        """
        if self.leaves_out(when):
            return []
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
                corruptions=names,
                order=order,
                severity=when.get("severity", 5),
                batch_size=self.study if batch == "study" else batch,
                settings=tuple(when.get("settings", {}).items()),
                statistics=when.get("statistics", False),
                samples=self._samples(when["method"]),
            )
            for seed in seeds
            for names in ([(name,) for name in corruptions] if order == "each" else [tuple(corruptions)])
        ]

    def _samples(self, method: str) -> int | None:
        bounds = [self.samples, self.slow_samples if method in SLOW else None]
        return min((bound for bound in bounds if bound is not None), default=None)


def demo(given: UserInputs) -> Benchmark:
    """The embedded images."""
    model, weights, name = cifar_model(given, "resnet20-cifar10", "our ResNet-20")
    return Benchmark(
        "demo",
        "CIFAR100-C",
        Place("demo", None, model, weights, "cifar10-c"),
        batch=64,
        study=64,
        setting="2,000 embedded CIFAR-10 test images, {network}, B = 64",
        network=name,
        extent="gaussian noise and motion blur of the 15 corruptions, two seeds, the first 250 samples of a stream for "
        "CoTTA, MEMO and TTA",
        corruptions=("gaussian_noise", "motion_blur"),
        validation=("speckle_noise", "gaussian_blur"),
        seeds=SEEDS[:2],
        slow_samples=250,
        architectures=((name, model, weights),),
    )


def cifar100(given: UserInputs) -> Benchmark:
    """Clean CIFAR-100, corrupted on the fly."""
    model, weights, name = cifar_model(given, "efficientnet-lite0-cifar100", "our EfficientNet-Lite0")
    return Benchmark(
        "cifar100",
        "CIFAR100-C",
        Place("cifar", data_of("cifar100", given.data), model, weights, "cifar100-c"),
        batch=200,
        study=128,
        setting="CIFAR-100 test images corrupted on the fly, {network} (the paper: CIFAR100-C, ResNeXt-29)",
        network=name,
        extent="one corruption of each family (gaussian noise, motion blur, fog, jpeg), one seed; CoTTA: first 1,000 "
        "samples",
        corruptions=FAMILIES,
        seeds=SEEDS[:1],
        slow_samples=1000,
        architectures=((name, model, weights),),
    )


def cifar100_c(given: UserInputs) -> Benchmark:
    """The published CIFAR-100-C."""
    there, own = data_of("cifar100-c", given.data), str(weights_of("cifar100-c", given.weights))
    clean = None if given.clean is None else str(given.clean)
    return Benchmark(
        "cifar100-c",
        "CIFAR100-C",
        Place("cifar-c", there, "resnext29", own, "cifar100-c", clean=clean),
        batch=200,
        study=128,
        setting="CIFAR-100-C and ResNeXt-29, the paper's setting",
        architectures=(("ResNeXt-29", "resnext29", own),),
    )


def imagenet_c(given: UserInputs) -> Benchmark:
    """The published ImageNet-C."""
    own = str(given.weights) if given.weights else "IMAGENET1K_V1"
    others = ("resnet18", "resnet101", "wide_resnet50_2", "densenet121")
    clean = None if given.clean is None else str(given.clean)
    there = data_of("imagenet-c", given.data)
    return Benchmark(
        "imagenet-c",
        "ImageNet-C",
        Place("imagenet-c", there, "torchvision:resnet50", own, "imagenet-c", clean=clean),
        batch=64,
        study=64,
        setting="ImageNet-C and torchvision's ResNet-50, the paper's setting",
        architectures=(
            ("resnet50", "torchvision:resnet50", own),
            *((name, f"torchvision:{name}", "IMAGENET1K_V1") for name in others),
        ),
    )


def imagenet_r(given: UserInputs) -> Benchmark:
    """The published ImageNet-R."""
    own = str(given.weights) if given.weights else "IMAGENET1K_V1"
    return Benchmark(
        "imagenet-r",
        "ImageNet-R",
        Place("imagenet-r", data_of("imagenet-r", given.data), "torchvision:resnet50", own, "imagenet-r"),
        batch=64,
        study=64,
        setting="ImageNet-R and torchvision's ResNet-50, the paper's setting",
        corruptions=(CLEAN,),
    )


def ytbb(given: UserInputs) -> Benchmark:
    """The frames of YTBB-sub, listed in a manifest."""
    there, own = data_of("ytbb-sub", given.data), str(weights_of("ytbb-sub", given.weights))
    return Benchmark(
        "ytbb-sub",
        "YTBB-sub",
        Place("video", there, "torchvision:resnet18", own, "ytbb-sub"),
        batch=200,
        study=200,
        setting="YTBB-sub, whole videos in four random orders, a ResNet-18 of yours",
        corruptions=(CLEAN,),
    )


BENCHMARKS: Mapping[str, Callable[[UserInputs], Benchmark]] = {
    "demo": demo,
    "cifar100": cifar100,
    "cifar100-c": cifar100_c,
    "imagenet-c": imagenet_c,
    "imagenet-r": imagenet_r,
    "ytbb-sub": ytbb,
}


def benchmark(
    name: str,
    path: Path | None = None,
    weights: Path | None = None,
    full: bool = False,
    clean: Path | None = None,
    samples: int | None = None,
    without: Sequence[str] = (),
) -> Benchmark:
    """Return the benchmark of this name.

    Args:
        name: one of `BENCHMARKS`.
        path: where its data is.
        weights: a file for its model.
        full: everything: all corruptions, seeds and images.
        clean: where clean images are, for the benchmarks whose own are all corrupted.
        samples: how many of each stream, from its beginning; None for all.
        without: methods to leave out.
    """
    if name not in BENCHMARKS:
        raise SettingError(f"Unknown benchmark {name!r}.{nearest(name, BENCHMARKS)}")
    if clean is not None and name not in ("cifar100-c", "imagenet-c"):
        raise SettingError(f"'{name}' takes no clean images (--clean): that is for 'cifar100-c' and 'imagenet-c'.")
    left_out = tuple(str(parse(method)) for method in without)
    if "source" in left_out:
        raise SettingError("Expected methods to leave out other than 'source', which all are compared with.")
    found = BENCHMARKS[name](UserInputs(path, weights, clean))
    found = found.full() if full else found
    return dataclasses.replace(found, samples=samples, without=left_out)


def four() -> dict[str, StreamSpec]:
    """Return the scenarios of the ablations (tables 9 and 10)."""
    return {
        "IS+CB": StreamSpec("IS+CB"),
        "DS+CB": StreamSpec("DS+CB", rho=0.5),
        "IS+CI": StreamSpec("IS+CI", pi=0.1),
        "DS+CI": StreamSpec("DS+CI", rho=0.5, pi=0.05),
    }
