"""What all layers have in common that stand in for a model's batch norms while it adapts.

What a layer observed becomes state only in `commit`, after the whole step has succeeded; `discard` forgets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..distributed import Ranks
from ..errors import InputError
from ..registry import Capabilities, component
from ..settings import Settings
from ..tensors import at_least_float32, changes
from .fused import fused, make_fused
from .labels import Labels
from .shift import sums
from .statistics import Observation
from .tbr import eval_norm

Used = tuple[Tensor, Tensor, Observation | None]
"""μ and σ that features are normalised with, and who measures the batch where the gradient passes through its own."""
Tail = Callable[[_BatchNorm, Tensor], Tensor]
"""What a batch norm subclass does after normalising, given itself and the features."""


class Phase:
    """What all layers of one adapter do now.

    Attributes:
        ranks: the processes whose batches count as one; None for this process alone.
        slot: which averages anchored layers use.
        steady: the same where they do not observe.
        rates: how far the averages of each slot follow a batch.
        half: whether these measure only the later half of a batch.
        anew: whether a new domain begins with this batch, so that the averages start again.
        sums: a list to which layers in the phase "source" add what `shift.py` needs of their features.
        reached: whether a layer has run.
        met: a list to which layers add their name, features and count of in-place changes at their first run.
        labels: those that the model has given to the batch, for layers that need them.
        empty: whether this rank has no sample and runs a row that does not count.
        now: "frozen": use the statistics. "observing": also measure the batch. "replaying": a model with gradient
            checkpoints repeats parts of its forward pass; measure nothing. "source": act as the original layer.
    """

    ranks: Ranks | None = None
    slot = steady = 0
    rates: tuple[float, ...] = ()
    half = False
    anew = False
    sums: list[tuple[AdaptiveNorm, Tensor]] | None = None
    reached = False
    met: list[tuple[str, Tensor, int | None]] | None = None
    labels: Labels | None = None
    empty = False
    now: Literal["frozen", "observing", "replaying", "source"] = "frozen"


_RUNS = {"frozen": "frozen", "observing": "observe", "replaying": "replay", "source": "as_source"}
"""The method that runs in each phase."""


@component("source", "statistics", "the model without adaptation", alone=True)
class SourceStatistics(Capabilities):
    """Never built: with the source's statistics no layer is replaced."""

    renews = False
    on_edge = True


class AdaptiveNorm(nn.Module, Capabilities):
    """Base: holds the original layer, whose γ, β and source statistics it uses, as `source`.

    Attributes:
        renews: whether it stands in for the original layer.
        per_batch: whether it normalises each batch by itself; then its place may stay empty in a method string.
        without_objective: the statistics that it equals without an objective, if it makes sense only with one.
        has_shares: whether it mixes statistics in shares that are chosen (`shares/selection.py`).
        needs_labels: whether it observes a batch with the labels that the model gave to it before.
        needs_statistics: whether it is made from the source's statistics.
        fuses: whether `used` tells all that a compiler must know (`fused.py`); each class says it for itself.
        handle: the layer's number in compiled graphs.
    """

    renews: ClassVar[bool] = True
    per_batch: ClassVar[bool] = False
    without_objective: ClassVar[str | None] = None
    has_shares: ClassVar[bool] = False
    needs_labels: ClassVar[bool] = False
    needs_statistics: ClassVar[bool] = False
    fuses: ClassVar[bool] = False
    handle: int | None = None

    _name = ""  # of the original layer in the model
    looks_ahead: ClassVar[bool] = False  # whether `observe` normalises with the batch at hand too, and `frozen` not
    _place = 0  # of that layer among the model's norm layers

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
        if self.handle is not None and torch.compiler.is_compiling():
            y = fused(x, *self._affine, self.handle)
        else:
            y = getattr(self, _RUNS[self._phase.now])(x)
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
        statistics = self._measured_source(x)
        return batch_norm(x, self.source) if statistics is None else eval_norm(x, *self._affine, *statistics)

    def _measured_source(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the source's mean and standard deviation, and measure how far x lies from them where asked to."""
        statistics = self.inherited()
        if statistics is not None and self._phase.sums is not None:
            self._phase.sums.append((self, sums(x, statistics[0], self._eps, not self._phase.empty)))
        return statistics

    def used(self, x: Tensor) -> Used | None:
        """Observe x as `forward` would now, and return what to normalise it with; None: as train-mode batch norm."""
        raise NotImplementedError

    def of_batch(self, x: Tensor) -> Used:
        """Return what train-mode batch norm normalises x with."""
        seen = Observation(x, self._eps)
        return (*seen.statistics, seen)

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

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy is another layer in compiled graphs."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]  # torch does not type it
        if self.handle is not None:
            make_fused([self])

    def __getattr__(self, name: str) -> Any:
        """Look like the original layer to code that reads its attributes, such as a model's own or a hook."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "source" not in self.__dict__.get("_modules", {}):
                raise
            return getattr(self._modules["source"], name)


def batch_norm(x: Tensor, layer: _BatchNorm) -> Tensor:
    """Train-mode batch norm; unlike torch's, it takes a single value per channel (and returns β)."""
    return torch.batch_norm(x, layer.weight, layer.bias, None, None, True, 0.0, layer.eps, False)
