"""Balanced batch norm of TRIBE (Su, Xu, Jia 2024): statistics by class, so that a frequent class does not rule.

Every class k has a mean and a variance for each channel, which start at the source's. All classes count the same:

    μ = mean_k μ_k          σ² = mean_k σ_k² + Var_k μ_k

The labels are the model's own, answered with the statistics from before the batch. With m_i and s_i² the mean and
variance of sample i over space, n_k the samples of class k, and a_k = min(η, 1/n_k), the classes that occur move by

    Δ_k = a_k Σ_i (m_i − μ_k)          D_k = a_k Σ_i (s_i² + (m_i − μ_k)²) − Δ_k²
    μ_k ← μ_k + (1 − γ) Δ_k            σ_k² ← σ_k² + (1 − γ)(D_k − a_k n_k σ_k²)

and then all classes by γ times the mean over the classes that occur: γ = 0 keeps the classes apart, 1 moves all alike.
The features that teach are normalised with μ and σ² after this step, and gradients pass through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import SettingError
from ..options import Options
from ..registry import component
from .labels import Labels
from .samples import MovedBySamples, normalised, sample_statistics
from .tbr import eval_norm

GAMMAS = ((10, 0.0), (100, 0.1))
"""γ for at most 10 and at most 100 classes; beyond, 0.5."""


@dataclass(frozen=True)
class BbnOptions(Options):
    """Settings of balanced batch norm.

    Attributes:
        bbn_eta: η, how far a sample moves its class; None takes max(0.0005 K, 0.01).
        bbn_gamma: γ, the share of a step that all classes take; None takes 0 for at most 10 classes, 0.1 for at most
            100, else 0.5.
    """

    bbn_eta: float | None = None
    bbn_gamma: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("bbn_eta", self.bbn_eta), ("bbn_gamma", self.bbn_gamma)):
            if value is not None and not 0 <= value <= 1:
                raise SettingError(f"Expected `{name}` to be between 0 and 1, but got {value}.")

    def rates(self, classes: int) -> tuple[float, float]:
        """Return η and γ for so many classes."""
        eta = max(0.0005 * classes, 0.01) if self.bbn_eta is None else self.bbn_eta
        gamma = next((gamma for most, gamma in GAMMAS if classes <= most), 0.5)
        return min(eta, 1.0), gamma if self.bbn_gamma is None else self.bbn_gamma


@component(
    "bbn",
    "statistics",
    "statistics by predicted class, all classes alike (balanced batch norm of TRIBE, Su et al. 2024)",
    alone=True,
    part=True,
)
class BalancedBatchNorm(MovedBySamples):
    """Averages `mean` and `std` of each class, (K, C); TRIBE's three networks are no part of it."""

    Options = BbnOptions
    needs_labels = True
    needs_statistics = True
    synchronises = False

    _balanced: tuple[Tensor, tuple[Tensor, Tensor]] | None = None  # what μ_k gave, as long as it is those μ_k

    def reset(self) -> None:
        """Every class is the source again."""
        self.discard()
        self._own = self.settings.options(BbnOptions)
        self._balanced = None
        self.mean = self.std = None

    def frozen(self, x: Tensor) -> Tensor:
        """Normalise with the balanced statistics."""
        mean, var = self._current_balanced()
        return eval_norm(x, *self._affine, mean, (var + self._eps).sqrt())

    def observe(self, x: Tensor) -> Tensor:
        """Normalise with the statistics that this batch has moved."""
        last = self._seen[-1] if self._seen else None
        before = (last[0], last[1]) if last else None  # a layer that runs twice in a forward pass moves twice
        y, found = self._normalised(x, before)
        if found is not None:
            self._seen.append(found)
        return y

    def replay(self, x: Tensor) -> Tensor:
        """Normalise as `observe` did."""
        return self._normalised(x)[0]

    def _normalised(
        self, x: Tensor, before: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor, Tensor] | None]:
        """Return the normalised features, the moved means and variances of the classes, and those of the samples."""
        labels = self._phase.labels
        if labels is None:
            return self.frozen(x), None
        with torch.autocast(x.device.type, enabled=False):
            sample = sample_statistics(x)
            rates = self._own.rates(labels.classes)
            means, variances = moved(*(before or self._by_class(labels.classes)), *sample, labels, *rates)
            mean, var = balanced(means, variances)
            if mean.requires_grad:
                y = normalised(x, *self._affine, mean, var, self._eps)
            else:
                y = eval_norm(x, *self._affine, mean, (var + self._eps).sqrt())
        return y, (means.detach(), variances.detach(), sample[0].detach(), sample[1].detach())

    def _by_class(self, classes: int) -> tuple[Tensor, Tensor]:
        """Return μ_k and σ_k², (K, C), as the batches before have left them."""
        current = self._current()
        if current is not None:
            return current[0], current[1] ** 2
        mean, var = self._source_moments()
        return mean.expand(classes, -1), var.expand(classes, -1)

    def _source_moments(self) -> tuple[Tensor, Tensor]:
        inherited = self.inherited()
        assert inherited is not None
        assert self.source.running_var is not None
        return inherited[0], self.source.running_var.to(inherited[0])

    def _current_balanced(self) -> tuple[Tensor, Tensor]:
        """Return μ and σ², (C,)."""
        current = self._current()
        if current is None:
            return self._source_moments()
        if self._balanced is None or self._balanced[0] is not current[0]:
            self._balanced = current[0], balanced(current[0], current[1] ** 2)
        return self._balanced[1]

    def measured(self) -> Iterable[Tensor]:
        """The statistics that were moved."""
        return (t for found in self._seen for t in found[:2])

    def commit(self) -> None:
        """Keep the moved statistics."""
        if self._seen:
            means, variances, *_ = self._seen[-1]
            self.mean, self.std = means, variances.clamp(min=0).sqrt()  # below 0 by rounding alone
        self.discard()

    def baked(self) -> tuple[Tensor, Tensor] | None:
        """The balanced statistics, which a plain layer can hold."""
        return self._current_balanced()

    def fits(self, state: Mapping[str, Tensor]) -> bool:
        """Whether such a layer may have remembered it."""
        shapes = {t.shape for t in state.values()}
        return state.keys() == {"mean", "std"} and len(shapes) == 1 and [s[1:] for s in shapes] == [self._width]

    @property
    def _width(self) -> torch.Size:
        return torch.Size([self.source.num_features])


def balanced(means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean_k μ_k and mean_k σ_k² + Var_k μ_k, (C,); the published program takes the unbiased variance.

    Args:
        means: μ_k, (K, C).
        variances: σ_k², likewise.
    """
    between, mean = torch.var_mean(means, 0, correction=1)
    return mean, variances.mean(0) + between


def moved(
    means: Tensor, variances: Tensor, mean: Tensor, var: Tensor, labels: Labels, eta: float, gamma: float
) -> tuple[Tensor, Tensor]:
    """Return μ_k and σ_k² after a batch, (K, C).

    Args:
        means: μ_k, (K, C).
        variances: σ_k², likewise.
        mean: m of each sample, (B, C).
        var: s² of each sample, likewise.
        labels: of the samples.
        eta: η.
        gamma: γ.
    """
    present, group = labels.present, labels.group
    counts = labels.counts.to(mean.dtype).unsqueeze(1)
    rate = counts.reciprocal().clamp(max=eta)  # a_k, (k, 1)
    apart = mean - means[present][group]
    sums = mean.new_zeros(len(present), mean.shape[1])
    step = rate * sums.index_add(0, group, apart)
    spread = rate * sums.index_add(0, group, torch.addcmul(var, apart, apart)) - step**2
    shrunk = spread - rate * counts * variances[present]
    means = means.index_add(0, present, (1 - gamma) * step)
    variances = variances.index_add(0, present, (1 - gamma) * shrunk)
    if gamma:
        means = means + gamma * step.mean(0)
        variances = variances + gamma * (spread.mean(0) - (rate * counts).mean() * variances)
    return means, variances
