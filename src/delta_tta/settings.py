"""The flat, typed settings of `adapt`."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_type_hints

from .errors import SettingError, nearest
from .guard_limits import Guard
from .presets import OURS as OURS
from .presets import PRESETS as PRESETS
from .presets import on_cifar as on_cifar
from .removed import refuse_removed
from .renamed import renamed
from .typed import ALIASES, typed

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """Everything about a method that its name does not say.

    The defaults are the paper's for ImageNet-C, the cautious ones. `OURS` says where methods with anchored statistics
    differ.

    Attributes:
        optimizer: "sgd" (momentum 0.9) or "adam" (betas 0.9, 0.999); no weight decay.
        lr: learning rate.
        alpha: α of TBR, TEMA and anchored statistics, the share of the old moving average that stays at each batch.
        init: where the moving averages of TBR and TEMA start: at the "first" batch, or at the source ("inherit").
        lam: λ of DOT, the share of the old class frequencies that stays at each batch.
        dot: how DOT weighs a sample, by its predicted class ("hard") or by all its probabilities ("soft").
        threshold: which samples train. PL: least confidence (0.4). Ent-W and ETA: entropy margin as a fraction of
            ln K (0.5, with a CIFAR preset 0.4; and 0.4). None takes the method's own.
        similarity: d of ETA and Div-W; only samples whose cosine to the average prediction is below it train.
        kl_weight: w of KL-div.
        fisher_weight: how strongly EATA holds the parameters that matter to the source.
        reduction: divide the summed loss by the whole batch ("batch", the paper's Algorithm 1) or by the
            samples that passed the threshold ("selected", what the paper's numbers were made with).
        affinity: how LAME compares features: "knn", "rbf" or "linear".
        neighbours: k of LAME's kNN and rbf.
        features: name of the layer whose input are LAME's features; None takes the last linear layer.
        views: augmented copies that TTA, CoTTA and MEMO make of an image.
        mean: of the input channels, 0 to 1, for the methods that augment images; None takes what the model says.
        std: of the input channels, like `mean`.
        gate: CoTTA makes views where the source's mean confidence is below it; None takes 0.92 for at most 10 classes,
            0.72 for at most 100, else 0.1.
        restore: share of CoTTA's weights that fall back to the source at each step.
        symmetric: whether CoTTA's loss goes both ways.
        filter: whether "+sticky" lets the answer to a sample depend on those behind it in its batch ("smooth"), or only
            on what came before ("causal").
        seed: of the random draws of the methods that have any.
        prior: N of BN adapt; the source statistics weigh as much as N samples of the batch.
        update: "every" batch; "slow": answer at once, learn from each `length` samples when they are full;
            "window": at each batch learn from the last `length` samples; "auto": every, but slow for batches of fewer
            than 9 samples.
        length: L of the slow update and the window, in samples.
        background: learn in a worker thread after the answer, so that the caller need not wait for it.
        episodic: forget everything before each batch.
        reset_every: go back to the source after so many updates; None: never. Parameters, optimizer, moving averages
            and what objective, reweighting and post-processing remember start again. The counts of `signals` and of the
            guard, a filter's beliefs and samples kept for a later update stay.
        sync: adapt together with the other processes of torch.distributed, as one model on one large batch.
        guard: "on": never learn from garbage (not finite, out of proportion, blank), and undo a collapse; "off":
            nothing of it; or a `Guard` of your own.
        compile: run the model through torch.compile, for batches of any size. The first batches take up to minutes.
        layout: memory layout of images and weights: "contiguous", "channels_last", or None, as they are given. "auto"
            times both on the first 14 batches by turns, and keeps the faster; answers depend on it by rounding.
        memory: "low" keeps about half of the bytes for the backward pass, of a ReLU's output one bit a value, and takes
            longer; None keeps what torch keeps.
        extra: settings that components outside of this package have declared, by name.
    """

    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float = 2.5e-4
    alpha: float = 0.95
    init: Literal["first", "inherit"] = "first"
    lam: float = 0.95
    dot: Literal["hard", "soft"] = "hard"
    threshold: float | None = None
    similarity: float = 0.05
    kl_weight: float = 100.0
    fisher_weight: float = 2000.0
    reduction: Literal["batch", "selected"] = "selected"
    affinity: Literal["knn", "rbf", "linear"] = "knn"
    neighbours: int = 5
    features: str | None = None
    views: int = 32
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    gate: float | None = None
    restore: float = 0.001
    symmetric: bool = True
    filter: Literal["smooth", "causal"] = "smooth"
    seed: int = 0
    prior: float = 0.0
    update: Literal["every", "slow", "window", "auto"] = "every"
    length: int = 64
    background: bool = False
    episodic: bool = False
    reset_every: int | None = None
    sync: bool = False
    guard: Guard | Literal["on", "off"] = "off"
    compile: bool = False
    layout: Literal["auto", "channels_last", "contiguous"] | None = None
    memory: Literal["low"] | None = None
    extra: tuple[tuple[str, Any], ...] = ()

    def options(self, kind: type[T]) -> T:
        """Return the settings that a component outside of this package has declared.

        Args:
            kind: the dataclass.
        """
        names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
        return kind(**{name: value for name, value in self.extra if name in names})

    def __post_init__(self) -> None:
        hints = _hints()
        for field in dataclasses.fields(self):
            if field.name == "extra":
                continue
            object.__setattr__(self, field.name, typed(field.name, getattr(self, field.name), hints[field.name]))
        _require("lr", self.lr, 0 < self.lr < math.inf, "greater than 0 and finite")
        _require("alpha", self.alpha, 0 <= self.alpha <= 1, "between 0 and 1")
        _require("lam", self.lam, 0 <= self.lam <= 1, "between 0 and 1")
        _require("threshold", self.threshold, self.threshold is None or self.threshold > 0, "greater than 0")
        _require("similarity", self.similarity, 0 < self.similarity <= 1, "greater than 0 and at most 1")
        _require("kl_weight", self.kl_weight, 0 <= self.kl_weight < math.inf, "at least 0 and finite")
        _require("fisher_weight", self.fisher_weight, 0 <= self.fisher_weight < math.inf, "at least 0 and finite")
        _require("prior", self.prior, 0 <= self.prior < math.inf, "at least 0 and finite")
        _require("gate", self.gate, self.gate is None or 0 <= self.gate <= 1, "between 0 and 1")
        _require("restore", self.restore, 0 <= self.restore <= 1, "between 0 and 1")
        _require("neighbours", self.neighbours, self.neighbours >= 1, "at least 1")
        _require("views", self.views, self.views >= 1, "at least 1")
        _require("seed", self.seed, 0 <= self.seed < 2**32, "an integer from 0 to 2**32 - 1")
        _require("length", self.length, self.length >= 1, "at least 1")
        _require("reset_every", self.reset_every, self.reset_every is None or self.reset_every >= 1, "at least 1")
        every = self.update in ("every", "auto")
        fine = every or not self.episodic  # otherwise the kept samples would be forgotten
        _require("sync", self.sync, not self.sync or every, "False unless update='every' or 'auto'")
        _require("sync", self.sync, not (self.sync and self.background), "False with background=True")
        _require("compile", self.compile, not (self.compile and self.sync), "False with sync=True")
        alike = self.layout != "auto" or not (self.compile or self.sync)  # every layout is compiled; ranks would differ
        _require("layout", self.layout, alike, "'channels_last', 'contiguous' or None with compile=True or sync=True")
        _require("memory", self.memory, not (self.memory and self.compile), "None with compile=True")
        _require("episodic", self.episodic, fine, "False with update='slow' or 'window'")


COMMON = ("update", "length", "background", "episodic", "reset_every", "sync", "guard", "compile", "layout", "memory")
"""Settings that every method has."""


def make_settings(
    preset: str | None, given: Mapping[str, Any], components: Sequence[Any] = (), base: Mapping[str, Any] | None = None
) -> Settings:
    """Lay the given settings over the components' own, those over the preset's, and all over the defaults.

    Args:
        preset: one of `PRESETS`.
        given: by the user.
        components: the classes that the method is made of.
        base: over the preset's and below the components' own.
    """
    if preset is not None and preset not in PRESETS:
        raise SettingError(f"Unknown preset {preset!r}.{nearest(str(preset), PRESETS)}")
    check_names(given, components)
    own: dict[str, Any] = {}
    for one in components:
        own |= {**one.defaults, **one.defaults_by_preset.get(preset or "", {})}
    values = {**(PRESETS[preset] if preset is not None else {}), **(base or {}), **own, **given}
    fields = {field.name for field in dataclasses.fields(Settings)}
    extra = tuple((name, values.pop(name)) for name in sorted(values.keys() - fields))
    settings = Settings(**values, extra=extra)
    for one in components:
        if one.Options is not None:
            settings.options(one.Options)  # it checks its values
    return settings


def check_names(given: Mapping[str, Any], components: Sequence[Any] = ()) -> None:
    """Raise where a setting is unknown."""
    refuse_removed("settings", given)
    known = [field.name for field in dataclasses.fields(Settings) if field.name != "extra"]
    known += [name for one in components for name in _options(one)]
    for name in given:
        if name not in known:
            usual = ALIASES.get(name)
            hint = nearest(name, known) if usual is None else f" Here it is called {usual!r}."
            raise SettingError(f"Unknown setting {name!r}.{hint}")


def used_by(components: Sequence[Any], with_objective: bool = False) -> set[str]:
    """Return the settings that a method of these components has."""
    found = {*COMMON, *(name for one in components for name in (*one.uses, *_options(one)))}
    return found if with_objective else found | {name for one in components for name in one.uses_alone}


def settings_of(component: Any) -> tuple[str, ...]:
    """Return the settings that a component reads, besides those that every method has."""
    return (*component.uses, *component.uses_alone, *_options(component))


def _options(component: Any) -> list[str]:
    return [] if component.Options is None else [field.name for field in dataclasses.fields(component.Options)]


@functools.cache
def _hints() -> dict[str, Any]:
    """Return the declared types; they are texts until asked for, which is slow."""
    return get_type_hints(Settings)


def _require(name: str, value: object, fine: bool, words: str) -> None:
    if not fine:
        raise SettingError(f"Expected setting `{name}` to be {words}, but got {value!r}.")


__getattr__ = renamed(__name__, gone={"PAPER": "`Settings()` has the paper's; `OURS` says where others differ"})
