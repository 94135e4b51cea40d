"""The layers that stand in for a model's batch norms while it adapts.

Each has two phases. Frozen: answer with what is known, change nothing. Adapting: also observe the features.
What was observed becomes state only in `commit`, after the whole step has succeeded; `discard` forgets it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import InputError
from ..settings import Settings
from ..words import word
from .statistics import Observation, at_least_float32, batch_moments
from .tbr import Renormalise, eval_norm, renormalise_by_terms

Tail = Callable[[_BatchNorm, Tensor], Tensor]
"""What a batch norm subclass does after normalising, given itself and the features."""

TRUSTED_SAMPLES = 9
TRUSTED_VALUES = 64
"""init "auto": a first batch with fewer samples, or fewer values per channel, is too small to start from.

The paper finds "inherit" better up to 8 samples (appendix A.4); 64 values estimate σ to about 9 %.
"""


class Phase:
    """Shared by all layers of one adapter: whether they observe what they see."""

    adapting = False


@word("source", "statistics", "the model as it is, nothing adapts", alone=True)
class SourceStatistics:
    """Never built: the source's statistics need no layer of ours."""


class AdaptiveNorm(nn.Module):
    """Base: holds the original layer, whose γ, β and source statistics it uses, as `source`."""

    def __init__(self, source: _BatchNorm, tail: Tail | None, settings: Settings, phase: Phase) -> None:
        super().__init__()
        self.source = source
        self.settings = settings
        self._affine = source.weight, source.bias  # looked up once: a module's attributes are slow to reach
        self._tail = tail
        self._phase = phase

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, then do what the original layer does after it."""
        try:
            self.source._check_input_dim(x)
        except ValueError as error:
            raise InputError(
                f"A {type(self.source).__name__} of the model met features of shape {tuple(x.shape)}: {error}. "
                "Give the model a whole batch: the first dimension counts the samples."
            ) from error
        y = self.observe(x) if self._phase.adapting else self.frozen(x)
        return y if self._tail is None else self._tail(self.source, y)

    def frozen(self, x: Tensor) -> Tensor:
        """Normalise without observing."""
        raise NotImplementedError

    def observe(self, x: Tensor) -> Tensor:
        """Normalise and remember, for `commit`, what was seen."""
        return self.frozen(x)

    def commit(self) -> None:
        """Make what was observed part of the state."""

    def discard(self) -> None:
        """Forget what was observed and not committed."""

    def reset(self) -> None:
        """Go back to the source."""

    def baked(self) -> tuple[Tensor, Tensor] | None:
        """Return the mean and variance of a plain layer that answers as `frozen` does; None: the batch's own."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Show the layer's shape, as torch does."""
        return f"{self.source.num_features}"


@word("bn", "statistics", "normalise with each batch's own statistics (BN adapt)", alone=True)
class BatchStatistics(AdaptiveNorm):
    """Batch statistics, mixed with the source's as if those came from `prior` more samples."""

    def frozen(self, x: Tensor) -> Tensor:
        """Normalise with the batch's statistics; there is nothing to remember."""
        s, prior = self.source, self.settings.prior
        if prior == 0 or s.running_mean is None or s.running_var is None:
            return batch_norm(x, s)
        share = prior / (prior + x.shape[0])  # N / (N + n), Schneider et al. 2020, equation 4
        mean, var = batch_moments(x)
        mean = torch.lerp(mean, s.running_mean.to(mean.dtype), share)
        var = torch.lerp(var, s.running_var.to(var.dtype), share)
        return eval_norm(x, s.weight, s.bias, mean, (var + s.eps).sqrt())

    def baked(self) -> tuple[Tensor, Tensor] | None:
        """A plain layer without statistics uses the batch's own in eval mode too."""
        return None


class Pending:
    """What a layer observed and did not commit (not a module: setting its attributes must be quick)."""

    __slots__ = ("averages", "seen")

    def __init__(self) -> None:
        self.seen: Observation | None = None
        self.averages: tuple[Tensor, Tensor] | None = None  # the ones to move on from, where not the layer's own


class MovingAverage(AdaptiveNorm):
    """Test-time moving averages of mean and standard deviation: buffers `mean` and `std`."""

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
        inherited = self._inherited() if self.settings.init == "inherit" else None
        self.mean, self.std = inherited if inherited is not None else (None, None)

    def frozen(self, x: Tensor) -> Tensor:
        """Normalise with the moving averages; before any batch was learnt from, as the source model does."""
        current = self._current() or self._inherited()
        if current is None:
            return batch_norm(x, self.source)
        return eval_norm(x, *self._affine, *current)

    def observe(self, x: Tensor) -> Tensor:
        """Normalise with the averages as they were before this batch."""
        pending = self._pending
        if pending.seen is not None:  # this layer is used more than once in a forward pass
            pending.averages = self._moved(pending.seen)
        seen = Observation(x, self.source.eps)
        current = pending.averages or self._current() or self._initial(x, seen)
        y = self.normalise(x, *current, seen)
        if not torch.is_grad_enabled():
            _ = seen.statistics  # no backward pass will come: measure now and let the features go
        pending.seen = seen
        return y

    def normalise(self, x: Tensor, mean: Tensor, std: Tensor, seen: Observation) -> Tensor:
        """Return γ (x − mean) / std + β with the gradient of the method."""
        raise NotImplementedError

    def commit(self) -> None:
        """μ_e ← α μ_e + (1−α) μ_b and the same for σ_e."""
        seen = self._pending.seen
        if seen is None:
            return
        current = self._current()
        if self._pending.averages is None and current is not None:
            for average, new in zip(current, seen.statistics, strict=True):
                average.lerp_(new, 1 - self.settings.alpha)
        else:
            self.mean, self.std = self._moved(seen)
        self.discard()

    def discard(self) -> None:
        """Forget what was observed and not committed."""
        self._pending.seen = self._pending.averages = None

    def baked(self) -> tuple[Tensor, Tensor] | None:
        """The variance that, with the layer's eps, gives σ_e."""
        current = self._current() or self._inherited()
        if current is None:
            return None
        mean, std = current
        return mean, (std * std - self.source.eps).clamp_(min=0)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> MovingAverage:
        """Follow the model to its device, but not to half precision."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch does not type it
        if self.mean is not None and self.std is not None:
            self.mean, self.std = at_least_float32(self.mean), at_least_float32(self.std)
        return self

    def _current(self) -> tuple[Tensor, Tensor] | None:
        mean, std = self._buffers["mean"], self._buffers["std"]
        return None if mean is None or std is None else (mean, std)

    def _inherited(self) -> tuple[Tensor, Tensor] | None:
        s = self.source
        if s.running_mean is None or s.running_var is None:
            return None
        return at_least_float32(s.running_mean.clone()), (at_least_float32(s.running_var) + s.eps).sqrt_()

    def _initial(self, x: Tensor, seen: Observation) -> tuple[Tensor, Tensor]:
        small = x.shape[0] < TRUSTED_SAMPLES or x.numel() // x.shape[1] < TRUSTED_VALUES
        if self.settings.init == "auto" and small:
            self._pending.averages = self._inherited()
        return self._pending.averages or seen.statistics

    def _moved(self, seen: Observation) -> tuple[Tensor, Tensor]:
        """Return the averages after an observation; the first one is taken as it is."""
        (mean, std), step = seen.statistics, 1 - self.settings.alpha
        old = self._pending.averages or self._current()
        return (mean, std) if old is None else (torch.lerp(old[0], mean, step), torch.lerp(old[1], std, step))


@word("tema", "statistics", "normalise with moving averages of the batch statistics", alone=True, part=True)
class Tema(MovingAverage):
    """Gradients take the moving averages for constants; under TENT this destroys the model."""

    def normalise(self, x: Tensor, mean: Tensor, std: Tensor, seen: Observation) -> Tensor:
        """Eval-mode batch norm."""
        return eval_norm(x, *self._affine, mean, std)


@word("tbr", "statistics", "moving averages, with gradients that respect normalisation (TBR)", part=True)
class Tbr(MovingAverage):
    """Test-time batch renormalisation; see tbr.py."""

    def normalise(self, x: Tensor, mean: Tensor, std: Tensor, seen: Observation) -> Tensor:
        """Equation 1."""
        if torch.compiler.is_compiling():
            return renormalise_by_terms(x, *self._affine, mean, std, seen)
        y: Tensor = Renormalise.apply(  # type: ignore[no-untyped-call]  # torch does not type it
            x, *self._affine, mean, std, seen
        )
        return y


def batch_norm(x: Tensor, layer: _BatchNorm) -> Tensor:
    """Train-mode batch norm; unlike torch's, it takes a single value per channel (and returns β)."""
    return torch.batch_norm(x, layer.weight, layer.bias, None, None, True, 0.0, layer.eps, False)
