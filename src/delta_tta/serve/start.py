"""From a model's name to a service."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from .. import models
from ..adapt import adapt, recommended
from ..adapter import Adapter
from ..errors import SettingError
from ..presets import RECOMMENDED_DEFAULTS
from ..recipe import parse
from .inputs import Wanted
from .service import Options, Service


@dataclass(frozen=True)
class Model:
    """What is served; the first five as `models.load` takes them, the next three as `adapt` does.

    Attributes:
        model: name of the model.
        weights: of the model.
        classes: its outputs.
        mean: of its input.
        std: of its input.
        method: how it adapts; None takes what `default_method` returns.
        preset: of the method.
        settings: of the method.
        name: how clients call it; None takes the last part of `model`.
        shape: of one sample; None takes what the model was trained on.
        most: samples in one request.
        device: where it runs; None: on the CPU.
    """

    model: str
    weights: str | Path | None = None
    classes: int | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    method: str | None = None
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    shape: tuple[int, ...] | None = None
    most: int = 256
    device: str | None = None


def name_of(chosen: Model) -> str:
    """Return how clients call the model."""
    name = chosen.name or re.split(r"[:/]", chosen.model)[-1]
    if not re.fullmatch(r"[\w.-]{1,100}", name, re.ASCII):
        raise SettingError(f"Expected a --name of letters, digits, '.', '-' and '_', but got {name!r}.")
    return name


def default_method(model: nn.Module) -> str:
    """Return the default of `adapt` without mirror images: a caller would wait for their run."""
    return str(replace(parse(recommended(model)), postprocess=None))


def make_adapter(model: nn.Module, chosen: Model) -> Adapter:
    """Adapt a copy of the model."""
    method, settings = chosen.method, chosen.settings
    if method is None:
        method, settings = default_method(model), {**RECOMMENDED_DEFAULTS, **settings}
    return adapt(copy.deepcopy(model).to(chosen.device), method, chosen.preset, **settings)


def make_service(chosen: Model, options: Options) -> Callable[[], Service]:
    """Load the model, and return what makes its service inside an event loop."""
    named = models.load(chosen.model, chosen.weights, chosen.classes, chosen.mean, chosen.std)
    shape = chosen.shape or (3, named.size, named.size)
    scale = named.normalisation if len(shape) == 3 and shape[0] == 3 else None
    name = name_of(chosen)
    return lambda: Service(name, lambda: make_adapter(named.model, chosen), Wanted(shape, scale, chosen.most), options)
