"""Settings of components: `Options`, their base, and those that several components share.

A component declares its settings as a frozen dataclass, `Options`, beside its code. A setting of several components is
declared once, here, and inherited. `adapt` takes all of them as keywords.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_type_hints

from .errors import SettingError
from .typed import typed


@dataclass(frozen=True)
class Options:
    """Base of settings that are given as keywords: each value is turned into its declared type, or refused.

    A class that checks its values does so in `__post_init__`, after that of its base.
    """

    def __post_init__(self) -> None:
        as_declared(self, [field.name for field in dataclasses.fields(self)])


def as_declared(settings: Any, names: Iterable[str]) -> None:
    """Turn these values of a frozen dataclass into their declared types, or raise."""
    kind: type = type(settings)
    hints = _hints(kind)
    for name in names:
        object.__setattr__(settings, name, typed(name, getattr(settings, name), hints[name]))


def require(name: str, value: object, fine: bool, words: str) -> None:
    """Raise where a setting is out of range."""
    if not fine:
        raise SettingError(f"Expected setting `{name}` to be {words}, but got {value!r}.")


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the declared types; they are texts until asked for, which is slow."""
    return get_type_hints(kind)


@dataclass(frozen=True)
class RateOptions(Options):
    """The step of what trains.

    Attributes:
        lr: learning rate.
    """

    lr: float = 2.5e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        require("lr", self.lr, 0 < self.lr < math.inf, "greater than 0 and finite")


@dataclass(frozen=True)
class OptimizerOptions(RateOptions):
    """Of what trains with an optimizer.

    Attributes:
        optimizer: "sgd" (momentum 0.9) or "adam" (betas 0.9, 0.999); no weight decay.
    """

    optimizer: Literal["sgd", "adam"] = "sgd"


@dataclass(frozen=True)
class ObjectiveOptions(OptimizerOptions):
    """Of every objective.

    Attributes:
        reduction: divide the summed loss by the whole batch ("batch", the paper's Algorithm 1) or by the
            samples that passed the threshold ("selected", what the paper's numbers were made with).
    """

    reduction: Literal["batch", "selected"] = "selected"


@dataclass(frozen=True)
class ThresholdOptions(Options):
    """Of objectives that some samples do not train.

    Attributes:
        threshold: which samples train. PL: least confidence (0.4). Ent-W and ETA: entropy margin as a fraction of
            ln K (0.5, with a CIFAR preset 0.4; and 0.4). None takes the method's own.
    """

    threshold: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require("threshold", self.threshold, self.threshold is None or self.threshold > 0, "greater than 0")


@dataclass(frozen=True)
class SimilarityOptions(Options):
    """Of the similarity filter.

    Attributes:
        similarity: d of ETA and Div-W; only samples whose cosine to the average prediction is below it train.
    """

    similarity: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        require("similarity", self.similarity, 0 < self.similarity <= 1, "greater than 0 and at most 1")


@dataclass(frozen=True)
class AlphaOptions(Options):
    """Of moving averages of statistics.

    Attributes:
        alpha: α of TBR, TEMA and anchored statistics, the share of the old moving average that stays at each batch.
    """

    alpha: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        require("alpha", self.alpha, 0 <= self.alpha <= 1, "between 0 and 1")


@dataclass(frozen=True)
class PixelOptions(Options):
    """Of what augments images.

    Attributes:
        mean: of the input channels, 0 to 1, for the methods that augment images; None takes what the model says.
        std: of the input channels, like `mean`.
    """

    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class ViewOptions(PixelOptions):
    """Of what averages over augmented copies.

    Attributes:
        views: augmented copies that TTA, CoTTA and MEMO make of an image.
    """

    views: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        require("views", self.views, self.views >= 1, "at least 1")


@dataclass(frozen=True)
class SeedOptions(Options):
    """Of what draws random numbers.

    Attributes:
        seed: of the random draws of the methods that have any.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require("seed", self.seed, 0 <= self.seed < 2**32, "an integer from 0 to 2**32 - 1")
