"""The settings of `adapt` as keywords, so that an editor completes them; the fields are those of `Settings`."""

from __future__ import annotations

from typing import Literal, TypedDict

from .guard_limits import Guard


class SettingsDict(TypedDict, total=False):
    """Settings that `adapt` takes; `Settings` says what they mean."""

    optimizer: Literal["sgd", "adam"]
    lr: float
    alpha: float
    init: Literal["first", "inherit"]
    lam: float
    dot: Literal["hard", "soft"]
    threshold: float | None
    similarity: float
    kl_weight: float
    fisher_weight: float
    reduction: Literal["batch", "selected"]
    affinity: Literal["knn", "rbf", "linear"]
    neighbours: int
    features: str | None
    views: int
    mean: tuple[float, float, float] | None
    std: tuple[float, float, float] | None
    gate: float | None
    restore: float
    symmetric: bool
    filter: Literal["smooth", "causal"]
    seed: int
    prior: float
    update: Literal["every", "slow", "window", "auto"]
    length: int
    background: bool
    episodic: bool
    reset_every: int | None
    sync: bool
    guard: Guard | Literal["on", "off"]
    compile: bool
    layout: Literal["auto", "channels_last", "contiguous"] | None
    memory: Literal["low"] | None
