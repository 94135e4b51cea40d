"""The settings of all components with their types, for editors and type checkers.

Made by tools/list_settings.py from the `Options` of the components.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from .guard_limits import Guard


class SettingsDict(TypedDict, total=False):
    """Settings as keywords of `adapt`; `methods()` says which component has which."""

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
    estimate: bool
    prior: float
    alpha: float
    init: Literal["first", "inherit"]
    bbn_eta: float | None
    bbn_gamma: float | None
    iabn_k: float
    seed: int
    unmix_components: int
    unmix_momentum: float | None
    unmix_batch: int
    lr: float
    optimizer: Literal["sgd", "adam"]
    reduction: Literal["batch", "selected"]
    threshold: float | None
    similarity: float
    fisher_weight: float
    deyo_margin: float
    deyo_plpd: float
    deyo_patches: int
    sar_rho: float
    sar_recovery: float
    lam: float
    dot: Literal["hard", "soft"]
    kl_weight: float
    features: str | None
    affinity: Literal["knn", "rbf", "linear"]
    neighbours: int
    neo_alpha: float | None
    t3a_supports: int
    mean: tuple[float, float, float] | None
    std: tuple[float, float, float] | None
    views: int
    filter: Literal["smooth", "causal"]
    roid_temperature: float
    roid_average: float
    roid_momentum: float
    cmf_alpha: float
    cmf_gamma: float
    cmf_q: float
    gate: float | None
    restore: float
    symmetric: bool
    note_capacity: int
    note_interval: int
    note_momentum: float
    note_temperature: float
    rotta_capacity: int
    rotta_interval: int
    rotta_nu: float
    rotta_lambda_t: float
    rotta_lambda_u: float
    neighbors: int


class SettingsAttributes:
    """The settings of components as attributes of `Settings`."""

    prior: float
    alpha: float
    init: Literal["first", "inherit"]
    bbn_eta: float | None
    bbn_gamma: float | None
    iabn_k: float
    seed: int
    unmix_components: int
    unmix_momentum: float | None
    unmix_batch: int
    lr: float
    optimizer: Literal["sgd", "adam"]
    reduction: Literal["batch", "selected"]
    threshold: float | None
    similarity: float
    fisher_weight: float
    deyo_margin: float
    deyo_plpd: float
    deyo_patches: int
    sar_rho: float
    sar_recovery: float
    lam: float
    dot: Literal["hard", "soft"]
    kl_weight: float
    features: str | None
    affinity: Literal["knn", "rbf", "linear"]
    neighbours: int
    neo_alpha: float | None
    t3a_supports: int
    mean: tuple[float, float, float] | None
    std: tuple[float, float, float] | None
    views: int
    filter: Literal["smooth", "causal"]
    roid_temperature: float
    roid_average: float
    roid_momentum: float
    cmf_alpha: float
    cmf_gamma: float
    cmf_q: float
    gate: float | None
    restore: float
    symmetric: bool
    note_capacity: int
    note_interval: int
    note_momentum: float
    note_temperature: float
    rotta_capacity: int
    rotta_interval: int
    rotta_nu: float
    rotta_lambda_t: float
    rotta_lambda_u: float
