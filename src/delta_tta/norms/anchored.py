"""Anchored statistics: a mixture of the source's and the stream's, (1 − m) μ_s + m μ_e and the same for σ.

The stream's moving averages alone (m = 1, the paper's TBR and TEMA) are nearly never the best, and on dependent streams
or clean images often far worse than the source. Which share m is, `shares/selection.py` finds while predicting.

Statistics depend on the m of the layers before: with another m, a layer gets other features. So each candidate m has
separate averages, a slot. The chosen slot measures every batch, the others the batches at which all are compared.

Relatives: Schneider et al. 2020 (the source as a prior), α-BN (You et al. 2021), TTN (Lim et al. 2023).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from ..options import AlphaOptions
from ..registry import component
from ..rules.shares import OWN, SHARES
from ..settings import RECOMMENDED_DEFAULTS, Settings
from .base import Used
from .layers import MovingAverage, Phase, Tail, batch_norm
from .statistics import Observation
from .tbr import eval_norm, tbr


def anchored_statistics(
    source_mean: Tensor, source_std: Tensor, mean: Tensor, std: Tensor, share: float
) -> tuple[Tensor, Tensor]:
    """Return (1 − m) μ_s + m μ_e and (1 − m) σ_s + m σ_e, each (C,), in the source's type.

    Args:
        source_mean: μ_s, (C,), what the model was trained with.
        source_std: σ_s, (C,).
        mean: μ_e, (C,), the stream's.
        std: σ_e, (C,).
        share: m, of the stream: 0 is the source, 1 the stream.

    Examples:
        >>> source, stream = (torch.tensor([0.0]), torch.tensor([1.0])), (torch.tensor([4.0]), torch.tensor([3.0]))
        >>> anchored_statistics(*source, *stream, share=0.25)
        (tensor([1.]), tensor([1.5000]))
    """
    return torch.lerp(source_mean, mean.to(source_mean), share), torch.lerp(source_std, std.to(source_std), share)


def pooled_update(
    mean: Tensor,
    std: Tensor,
    batch_mean: Tensor,
    batch_std: Tensor,
    rate: float,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return μ and σ, each (C,), moved by one batch; the variance counts what lies between batches.

        μ ← μ + a (μ_b − μ)          v ← (1 − a)(v + a (μ_b − μ)²) + a v_b          with v = σ²

    They are those of a population of which a share of a is the batch's: over batches of one size, at rates 1, 1/2, 1/3
    and so on, those of all samples.

    Args:
        mean: μ before, (C,).
        std: σ before, (C,).
        batch_mean: μ_b, (C,).
        batch_std: σ_b, (C,).
        rate: a, 0 to 1.
        out: where to write them; may be `mean` and `std`.

    Examples:
        >>> one, other = (torch.tensor([0.0]), torch.tensor([0.0])), (torch.tensor([2.0]), torch.tensor([0.0]))
        >>> pooled_update(*one, *other, rate=0.5)
        (tensor([1.]), tensor([1.]))
    """
    new_mean, new_std = (None, None) if out is None else out
    apart = batch_mean - mean
    variance = (1 - rate) * (std**2 + rate * apart**2) + rate * batch_std**2  # before `mean` is written to
    return torch.add(mean, apart, alpha=rate, out=new_mean), torch.sqrt(variance, out=new_std)


@component("anchored", "statistics", "mix source and stream, the share chosen without labels", alone=True, part=True)
class Anchored(MovingAverage):
    """Averages `mean` and `std` of every slot but the first and the last, (slots − 2, C); gradients as TBR's."""

    Options = AlphaOptions
    has_shares = on_edge = True
    fuses = through_batch = True
    defaults: ClassVar[Mapping[str, Any]] = RECOMMENDED_DEFAULTS

    def __init__(self, source: _BatchNorm, tail: Tail | None, settings: Settings, phase: Phase) -> None:
        super().__init__(source, tail, settings, phase)
        self._seen: list[tuple[int, Observation]] = []

    def reset(self) -> None:
        """Forget the stream."""
        self.discard()
        self.mean = self.std = None

    def frozen(self, x: Tensor) -> Tensor:
        """Normalise with the mixture of the chosen slot."""
        return self._normalised(x, self._mixed(x))

    def observe(self, x: Tensor) -> Tensor:
        """Normalise with the averages as they were before this batch; a slot's first batch starts them."""
        return self._normalised(x, self._mixed(x))

    def replay(self, x: Tensor) -> Tensor:
        """Normalise as `observe` did."""
        return self._normalised(x, self._mixed(x))

    def used(self, x: Tensor) -> Used | None:
        """Return what a compiled model normalises with."""
        if self._phase.now == "source":
            fixed = self._measured_source(x)
            return None if fixed is None else (*fixed, None)
        return self._mixed(x)

    def _normalised(self, x: Tensor, used: Used | None) -> Tensor:
        if used is None:
            return batch_norm(x, self.source)
        mean, std, seen = used
        if seen is None or not torch.is_grad_enabled():
            return eval_norm(x, *self._affine, mean, std)
        return tbr(x, *self._affine, mean, std, self._eps, seen)

    def _mixed(self, x: Tensor) -> Used | None:
        """Return the mixture of the slot for x, and, unless frozen, who measures x; observing, remember that."""
        learns, now = torch.is_grad_enabled(), self._phase.now
        slot = self._phase.steady if now == "frozen" else self._phase.slot
        observes = now == "observing"
        if now == "frozen" or (observes and slot == 0 and not learns):
            mixture = self._mixture(slot)
            return None if mixture is None else (*mixture, None)
        half = observes and self._phase.half and not learns  # TBR's gradient needs those of the whole batch
        seen = self._observation(x[len(x) // 2 :] if half else x)
        mixture = self._mixture(slot, seen)
        if observes:
            if not learns:
                seen.measure()  # no backward pass will come: let the features go
            self._seen.append((slot, seen))
        return None if mixture is None else (*mixture, seen)

    def _mixture(self, slot: int, seen: Observation | None = None) -> tuple[Tensor, Tensor] | None:
        """Return μ and σ of a slot; where its averages have not started, from what is seen. None: the batch's own."""
        source, current = self.inherited(), None if self._phase.anew else self._current()
        if slot == OWN:
            current = None
        if slot == 0 or (current is None and seen is None):
            return source
        stream: tuple[Tensor, Tensor] = (
            (current[0][slot - 1], current[1][slot - 1]) if current is not None else seen.statistics  # type: ignore[union-attr]
        )
        if source is None:  # a layer without statistics has nothing to be anchored to
            return stream
        return anchored_statistics(*source, *stream, SHARES[slot])

    @property
    def settled(self) -> bool:
        """Before the first batch it answers as the source does."""
        return True

    @property
    def seen(self) -> tuple[Tensor, Tensor] | None:
        """μ_b and σ_b of what was observed first."""
        return self._seen[0][1].statistics if self._seen else None

    def observations(self) -> list[Observation]:
        """Return what was observed."""
        return [seen for _, seen in self._seen]

    def drop(self, slot: int) -> None:
        """Forget what a slot observed: it will run on the same batch again."""
        self._seen = [(own, seen) for own, seen in self._seen if own != slot]

    def commit(self) -> None:
        """Move the averages of the slots that measured the batch, each by its rate."""
        if self._phase.anew:
            self.mean = self.std = None
        for slot, seen in self._seen:
            if slot in (0, OWN):
                continue
            mean_b, std_b = seen.statistics
            if self.mean is None or self.std is None:
                self.mean, self.std = (t.repeat(OWN - 1, 1) for t in (mean_b, std_b))
            own = self.mean[slot - 1], self.std[slot - 1]
            pooled_update(*own, mean_b, std_b, self._phase.rates[slot], out=own)
        self.discard()

    def discard(self) -> None:
        """Forget what was observed and not committed."""
        self._seen = []

    def fits(self, state: Mapping[str, Tensor]) -> bool:
        """Whether such a layer may have remembered it."""
        width = (OWN - 1, self.source.num_features)
        return state.keys() == {"mean", "std"} and all(t.shape == width for t in state.values())

    def baked(self) -> tuple[Tensor, Tensor] | None:
        """The mixture, which a plain layer can hold."""
        mixture = self._mixture(self._phase.steady)
        return None if mixture is None else (mixture[0], (mixture[1] ** 2 - self.source.eps).clamp_(min=0))
