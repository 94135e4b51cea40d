"""The layers that stand in for a model's batch norms while it adapts.

What a layer observed becomes state only in `commit`, after the whole step has succeeded; `discard` forgets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..engine.distributed import Ranks
from ..errors import InputError
from ..registry import Capabilities, component
from ..settings import Settings
from .shift import sums
from .statistics import Observation, at_least_float32, batch_moments, changes, follow
from .tbr import eval_norm, tbr

Tail = Callable[[_BatchNorm, Tensor], Tensor]
"""What a batch norm subclass does after normalising, given itself and the features."""

TRUSTED_SAMPLES = 9
"""update "auto": a batch with fewer samples is too small to learn from by itself. The paper finds it better to
start from the source up to 8 samples (appendix A.4)."""


class Phase:
    """Shared by all layers of one adapter.

    frozen: answer with what is known. observing: also remember what is seen. replaying: a backward pass is on, and a
    model with gradient checkpoints runs parts of its forward pass again; do as before, but remember nothing. source: do
    as the original layer would.

    `ranks` are the processes whose batches count as one; None for this one alone. `slot` is which averages anchored
    layers use, `rates` how far those of each slot follow a batch, `anew` whether a new domain begins with this batch,
    and their averages start again. A list as `sums` asks the layers, in the phase "source", to tell what shift.py wants
    to know of their features. `reached`: some layer has been run. A list as `met` asks the layers that run for the
    first time for their name, their features, and how often these were changed in place before.
    """

    ranks: Ranks | None = None
    slot = 0
    rates: tuple[float, ...] = ()
    anew = False
    sums: list[tuple[AdaptiveNorm, Tensor]] | None = None
    reached = False
    met: list[tuple[str, Tensor, int | None]] | None = None
    empty = False  # this rank has no sample, and runs a row that does not count
    now: Literal["frozen", "observing", "replaying", "source"] = "frozen"


@component("source", "statistics", "the model as it is, nothing adapts", alone=True)
class SourceStatistics(Capabilities):
    """Never built: the source's statistics need no layer of ours."""


class AdaptiveNorm(nn.Module, Capabilities):
    """Base: holds the original layer, whose γ, β and source statistics it uses, as `source`."""

    _name = ""  # of the original layer in the model

    def __init__(self, source: _BatchNorm, tail: Tail | None, settings: Settings, phase: Phase) -> None:
        super().__init__()
        self.source = source
        self.settings = settings
        self._affine, self._eps = (source.weight, source.bias), source.eps  # once: modules are slow to ask
        self._rank = 0  # of the features, once they were found right
        self._tail = tail
        self._phase = phase

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, then do what the original layer does after it."""
        if x.dim() != self._rank:
            self._check(x)
        phase = self._phase.now
        if phase == "observing":
            y = self.observe(x)
        elif phase == "frozen":
            y = self.frozen(x)
        elif phase == "replaying":
            y = self.replay(x)
        else:
            y = self.as_source(x)
        return y if self._tail is None else self._tail(self.source, y)

    def _check(self, x: Tensor) -> None:
        try:
            self.source._check_input_dim(x)
        except ValueError as error:
            raise InputError(
                f"A {type(self.source).__name__} of the model met features of shape {tuple(x.shape)}: {error}. "
                "Give the model a whole batch: the first dimension counts the samples."
            ) from error
        self._rank = x.dim()
        self._phase.reached = True
        if self._phase.met is not None:
            self._phase.met.append((self._name, x, changes(x)))

    def as_source(self, x: Tensor) -> Tensor:
        """Normalise as the original layer does in eval mode."""
        statistics = self.inherited()
        if statistics is not None and self._phase.sums is not None:
            self._phase.sums.append((self, sums(x, statistics[0], self._eps, not self._phase.empty)))
        return batch_norm(x, self.source) if statistics is None else eval_norm(x, *self._affine, *statistics)

    def inherited(self) -> tuple[Tensor, Tensor] | None:
        """Return mean and standard deviation of the source, if the layer has them."""
        s = self.source
        if s.running_mean is None or s.running_var is None:
            return None
        return at_least_float32(s.running_mean.clone()), (at_least_float32(s.running_var) + s.eps).sqrt_()

    def frozen(self, x: Tensor) -> Tensor:
        """Normalise without observing."""
        raise NotImplementedError

    def observe(self, x: Tensor) -> Tensor:
        """Normalise and remember, for `commit`, what was seen."""
        return self.frozen(x)

    def replay(self, x: Tensor) -> Tensor:
        """Normalise as `observe` did, and remember nothing."""
        return self.frozen(x)

    @property
    def settled(self) -> bool:
        """Whether `frozen` and `observe` give the same values."""
        return True

    def measured(self) -> Iterable[Tensor]:
        """Return the statistics of what was observed; from here on `commit` cannot fail."""
        return ()

    def commit(self) -> None:
        """Make what was observed part of the state."""

    def discard(self) -> None:
        """Forget what was observed and not committed."""

    def reset(self) -> None:
        """Go back to the source."""

    def baked(self) -> tuple[Tensor, Tensor] | None:
        """Return mean and variance of a plain layer that answers as `frozen` does; None: the batch's own."""
        raise NotImplementedError

    def fits(self, state: Mapping[str, Tensor]) -> bool:
        """Whether moving averages in this place may have remembered it."""
        width = (self.source.num_features,)
        return state.keys() == {"mean", "std"} and all(t.shape == width for t in state.values())

    def extra_repr(self) -> str:
        """Show the layer's shape, as torch does."""
        return f"{self.source.num_features}"

    def __getattr__(self, name: str) -> Any:
        """Look like the original layer to code that reads its attributes, such as a model's own or a hook."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "source" not in self.__dict__.get("_modules", {}):
                raise
            return getattr(self._modules["source"], name)


@component("bn", "statistics", "normalise with each batch's own statistics (BN adapt)", alone=True)
class BatchStatistics(AdaptiveNorm):
    """Batch statistics, mixed with the source's as if those came from `prior` more samples."""

    uses = ("prior",)

    def frozen(self, x: Tensor) -> Tensor:
        """Normalise with the batch's statistics; there is nothing to remember."""
        s, prior, ranks = self.source, self.settings.prior, self._phase.ranks
        if ranks is not None:
            return self._shared(x, Observation(x, self._eps, ranks, self._phase.empty))
        if prior == 0 or s.running_mean is None or s.running_var is None:
            return batch_norm(x, s)
        share = prior / (prior + x.shape[0])  # N / (N + n), Schneider et al. 2020
        mean, var = batch_moments(x)
        mean = torch.lerp(mean, s.running_mean.to(mean.dtype), share)
        var = torch.lerp(var, s.running_var.to(var.dtype), share)
        return eval_norm(x, *self._affine, mean, (var + s.eps).sqrt())

    def _shared(self, x: Tensor, seen: Observation) -> Tensor:
        """Train-mode batch norm over all ranks: TBR whose averages are the batch's statistics."""
        mean, std = seen.statistics
        s, prior = self.source, self.settings.prior
        if prior > 0 and s.running_mean is not None and s.running_var is not None:
            assert seen.samples is not None
            share = prior / (prior + seen.samples)
            mean = torch.lerp(mean, s.running_mean.to(mean.dtype), share)
            std = (torch.lerp(std**2 - s.eps, s.running_var.to(mean.dtype), share) + s.eps).sqrt()
        return tbr(x, *self._affine, mean, std, self._eps, seen)

    def baked(self) -> tuple[Tensor, Tensor] | None:
        """A plain layer without statistics uses the batch's own in eval mode too."""
        return None


class Pending:
    """What a layer observed and did not commit (not a module: setting its attributes must be quick)."""

    __slots__ = ("seen", "start")

    def __init__(self) -> None:
        self.seen: list[Observation] = []  # more than one if the layer is used more than once in a forward pass
        self.start: tuple[Tensor, Tensor] | None = None  # where the averages start, if this is their first batch


class MovingAverage(AdaptiveNorm):
    """Test-time moving averages of mean and standard deviation: buffers `mean` and `std`."""

    uses: ClassVar[tuple[str, ...]] = ("alpha", "init")

    observation: type[Observation] = Observation
    mean: Tensor | None
    std: Tensor | None

    def __init__(self, source: _BatchNorm, tail: Tail | None, settings: Settings, phase: Phase) -> None:
        super().__init__(source, tail, settings, phase)
        self.register_buffer("mean", None)
        self.register_buffer("std", None)
        self._pending = Pending()
        self.reset()

    def reset(self) -> None:
        """Start from the source ("inherit") or from nothing (the first batch decides)."""
        self.discard()
        inherited = self.inherited() if self.settings.init == "inherit" else None
        self.mean, self.std = inherited if inherited is not None else (None, None)

    def frozen(self, x: Tensor) -> Tensor:
        """Normalise with the moving averages; before any batch was learnt from, as the source model does."""
        current = self._current() or self.inherited()
        if current is None and self._phase.ranks is not None:
            current = self._observation(x).statistics
        if current is None:
            return batch_norm(x, self.source)
        return eval_norm(x, *self._affine, *current)

    def observe(self, x: Tensor) -> Tensor:
        """Normalise with the averages as they were before this batch."""
        pending, seen = self._pending, self._observation(x)
        current = self._current()
        if current is None:
            current = pending.start = pending.start or seen.statistics
        y = self.normalise(x, *current, seen)
        if not torch.is_grad_enabled():
            _ = seen.statistics  # no backward pass will come: measure now and let the features go
        pending.seen.append(seen)
        return y

    def replay(self, x: Tensor) -> Tensor:
        """Normalise with the averages that `observe` used."""
        current = self._current() or self._pending.start
        assert current is not None
        return self.normalise(x, *current, self._observation(x))

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

    def measured(self) -> Iterable[Tensor]:
        """μ_b and σ_b of what was observed."""
        return (t for seen in self._pending.seen for t in seen.statistics)

    def commit(self) -> None:
        """μ_e ← α μ_e + (1−α) μ_b and the same for σ_e."""
        if self._pending.start is not None:
            self.mean, self.std = (t.clone() for t in self._pending.start)
        for seen in self._pending.seen:
            self.move(seen)
        self.discard()

    def move(self, seen: Observation) -> None:
        """Move the averages by what was seen."""
        for average, new in zip(self._current() or (), seen.statistics, strict=True):
            average.lerp_(new, 1 - self.settings.alpha)

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

    def normalise(self, x: Tensor, mean: Tensor, std: Tensor, seen: Observation) -> Tensor:
        """Eval-mode batch norm."""
        return eval_norm(x, *self._affine, mean, std)


@component("tbr", "statistics", "moving averages, with gradients that respect normalisation (TBR)", part=True)
class Tbr(MovingAverage):
    """Test-time batch renormalisation; see tbr.py."""

    def normalise(self, x: Tensor, mean: Tensor, std: Tensor, seen: Observation) -> Tensor:
        """Equation 1."""
        return tbr(x, *self._affine, mean, std, self._eps, seen)


def batch_norm(x: Tensor, layer: _BatchNorm) -> Tensor:
    """Train-mode batch norm; unlike torch's, it takes a single value per channel (and returns β)."""
    return torch.batch_norm(x, layer.weight, layer.bias, None, None, True, 0.0, layer.eps, False)
