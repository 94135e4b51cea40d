"""Normalise with moving averages of the batch statistics: TEMA, and TBR, which differ in the gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from ..options import AlphaOptions
from ..registry import component
from ..settings import Settings
from ..tensors import follow
from .base import AdaptiveNorm, Phase, Tail, Used, batch_norm
from .statistics import Observation, merge
from .tbr import eval_norm, tbr


class Pending:
    """What a layer observed and did not commit (not a module: setting its attributes must be quick)."""

    __slots__ = ("seen", "start")

    def __init__(self) -> None:
        self.seen: list[Observation] = []  # more than one if the layer is used more than once in a forward pass
        self.start: tuple[Tensor, Tensor] | None = None  # where the averages start, if this is their first batch


def merge_observed(norms: Iterable[AdaptiveNorm]) -> None:
    """Calculate the statistics of what these layers observed, all together."""
    merge(seen for norm in norms if isinstance(norm, MovingAverage) for seen in norm.observations())


def commit_all(norms: Iterable[AdaptiveNorm]) -> None:
    """Let every layer commit; the averages that move alike move in one call."""
    averages: dict[float, tuple[list[Tensor], list[Tensor]]] = {}
    for norm in norms:
        if type(norm) not in (Tema, Tbr) or len(norm._pending.seen) != 1:
            norm.commit()
            continue
        norm.start()
        old, new = averages.setdefault(1 - norm.alpha, ([], []))
        old.extend(norm._current() or ())
        new.extend(norm._pending.seen[0].statistics)
        norm.discard()
    for rate, (old, new) in averages.items():
        torch._foreach_lerp_(old, new, rate)


@dataclass(frozen=True)
class MovingOptions(AlphaOptions):
    """Settings of TBR and TEMA.

    Attributes:
        init: where the moving averages of TBR and TEMA start: at the "first" batch, or at the source ("inherit").
    """

    init: Literal["first", "inherit"] = "first"


class MovingAverage(AdaptiveNorm):
    """Test-time moving averages of mean and standard deviation: buffers `mean` and `std`."""

    observation: type[Observation] = Observation
    alpha: float
    through_batch: ClassVar[bool] = False  # whether gradients pass through the batch's statistics
    mean: Tensor | None
    std: Tensor | None

    def __init__(self, source: _BatchNorm, tail: Tail | None, settings: Settings, phase: Phase) -> None:
        super().__init__(source, tail, settings, phase)
        self.alpha = settings.options(AlphaOptions).alpha
        self.register_buffer("mean", None)
        self.register_buffer("std", None)
        self._pending = Pending()
        self.reset()

    def reset(self) -> None:
        """Start from the source ("inherit") or from nothing (the first batch decides)."""
        self.discard()
        inherited = self.inherited() if self.settings.options(MovingOptions).init == "inherit" else None
        self.mean, self.std = inherited if inherited is not None else (None, None)

    def frozen(self, x: Tensor) -> Tensor:
        """Normalise with the moving averages; before any batch was learnt from, as the source model does."""
        current = self._known(x)
        return batch_norm(x, self.source) if current is None else eval_norm(x, *self._affine, *current)

    def observe(self, x: Tensor) -> Tensor:
        """Normalise with the averages as they were before this batch."""
        return self.normalise(x, *self._observed(x))

    def replay(self, x: Tensor) -> Tensor:
        """Normalise with the averages that `observe` used."""
        return self.normalise(x, *self._replayed(x))

    def used(self, x: Tensor) -> Used | None:
        """Return what a compiled model normalises with."""
        phase = self._phase.now
        if phase in ("frozen", "source"):
            fixed = self._known(x) if phase == "frozen" else self._measured_source(x)
            return None if fixed is None else (*fixed, None)
        mean, std, seen = self._observed(x) if phase == "observing" else self._replayed(x)
        if phase == "observing":
            seen.measure()  # a compiled model uses the memory of x again without notice
        return mean, std, seen if self.through_batch else None

    def _known(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        current = self._current() or self.inherited()
        if current is None and self._phase.ranks is not None:
            current = self._observation(x).statistics
        return current

    def _observed(self, x: Tensor) -> tuple[Tensor, Tensor, Observation]:
        pending, seen = self._pending, self._observation(x)
        current = self._current()
        if current is None:
            current = pending.start = pending.start or seen.statistics
        if not torch.is_grad_enabled():
            seen.measure()  # no backward pass will come: let the features go
        pending.seen.append(seen)
        return (*current, seen)

    def _replayed(self, x: Tensor) -> tuple[Tensor, Tensor, Observation]:
        current = self._current() or self._pending.start
        assert current is not None
        return (*current, self._observation(x))

    def normalise(self, x: Tensor, mean: Tensor, std: Tensor, seen: Observation) -> Tensor:
        """Return γ (x − mean) / std + β with the gradient of the method."""
        raise NotImplementedError

    @property
    def settled(self) -> bool:
        """Whether the averages have started."""
        return self._current() is not None

    @property
    def seen(self) -> tuple[Tensor, Tensor] | None:
        """μ_b and σ_b of what was observed first."""
        return self._pending.seen[0].statistics if self._pending.seen else None

    def observations(self) -> list[Observation]:
        """Return what was observed."""
        return self._pending.seen

    def measured(self) -> Iterable[Tensor]:
        """μ_b and σ_b of what was observed."""
        return (t for seen in self.observations() for t in seen.statistics)

    def commit(self) -> None:
        """μ_e ← α μ_e + (1−α) μ_b and the same for σ_e."""
        self.start()
        for seen in self._pending.seen:
            self.move(seen)
        self.discard()

    def start(self) -> None:
        """Start the averages, if this was their first batch."""
        if self._pending.start is not None:
            self.mean, self.std = (t.clone() for t in self._pending.start)

    def move(self, seen: Observation) -> None:
        """Move the averages by what was seen."""
        for average, new in zip(self._current() or (), seen.statistics, strict=True):
            average.lerp_(new, 1 - self.alpha)

    def remembered(self) -> dict[str, Tensor]:
        """Return a copy of the state; nothing before the averages have started."""
        current = self._current()
        return {} if current is None else {"mean": current[0].clone(), "std": current[1].clone()}

    def recall(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what was remembered."""
        self.mean, self.std = state["mean"], state["std"]

    def discard(self) -> None:
        """Forget what was observed and not committed."""
        if self._pending.seen:
            self._pending.seen = []
        self._pending.start = None

    def baked(self) -> tuple[Tensor, Tensor] | None:
        """The variance that, with the layer's eps, gives σ_e."""
        current = self._current() or self.inherited()
        if current is None:
            return None
        mean, std = current
        return mean, (std * std - self.source.eps).clamp_(min=0)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> MovingAverage:
        """Go with the model to its device, but not to half precision."""
        current = self._current()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch does not type it
        if current is not None:
            self.mean, self.std = (follow(fn, t) for t in current)
        return self

    def _observation(self, x: Tensor) -> Observation:
        return self.observation(x, self._eps, self._phase.ranks, self._phase.empty, self._name)

    def _current(self) -> tuple[Tensor, Tensor] | None:
        mean, std = self._buffers["mean"], self._buffers["std"]
        return None if mean is None or std is None else (mean, std)


@component("tema", "statistics", "normalise with moving averages of the batch statistics", alone=True, part=True)
class Tema(MovingAverage):
    """Gradients take the moving averages for constants; under TENT this destroys the model."""

    Options = MovingOptions
    fuses = True

    def normalise(self, x: Tensor, mean: Tensor, std: Tensor, seen: Observation) -> Tensor:
        """Eval-mode batch norm."""
        return eval_norm(x, *self._affine, mean, std)


@component("tbr", "statistics", "moving averages, with gradients that respect normalisation (TBR)", part=True)
class Tbr(MovingAverage):
    """Test-time batch renormalisation; see tbr.py."""

    Options = MovingOptions
    without_objective = "tema"
    fuses = through_batch = True

    def normalise(self, x: Tensor, mean: Tensor, std: Tensor, seen: Observation) -> Tensor:
        """Equation 1."""
        return tbr(x, *self._affine, mean, std, self._eps, seen)
