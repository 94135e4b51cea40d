"""UnMix-TNS (Tomar et al. 2024): each sample is normalised with its own statistics mixed into K components.

The components start around the source and stand for the parts of an unbiased stream that the batch does not show. With
m_b and s_b² the mean and variance of sample b over space, p_b = softmax_k(cos(m_b, μ_k) / τ), and for each channel

    μ̂_bk = (1 − p_bk) μ_k + p_bk m_b          σ̂²_bk = (1 − p_bk) σ_k² + p_bk s_b²

the sample is normalised with mean_k μ̂_bk and mean_k σ̂²_bk + mean_k μ̂²_bk − (mean_k μ̂_bk)². Then the components move,

    μ_k ← μ_k + λ mean_b p_bk (m_b − μ_k)     and the same for σ_k².

Gradients pass through m_b and s_b², and take p and the components for constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import ModelError, SettingError
from ..options import SeedOptions
from ..registry import component
from ..tensors import at_least_float32
from .samples import MovedBySamples, normalised, sample_statistics
from .tbr import eval_norm

TEMPERATURE = 0.07
"""τ."""
SPREAD = 0.5
"""α: the share of the source's variance that lies between the components at the start."""


@dataclass(frozen=True)
class UnmixOptions(SeedOptions):
    """Settings of UnMix-TNS.

    Attributes:
        unmix_components: K.
        unmix_momentum: λ at batches of `unmix_batch` samples; None takes the momentum of the layer, mostly 0.1.
        unmix_batch: a batch of B samples moves the components by 1 − (1 − momentum)^(B / unmix_batch).
    """

    unmix_components: int = 16
    unmix_momentum: float | None = None
    unmix_batch: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("unmix_components", "unmix_batch"):
            if getattr(self, name) < 1:
                raise SettingError(f"Expected `{name}` to be at least 1, but got {getattr(self, name)}.")
        if self.unmix_momentum is not None and not 0 <= self.unmix_momentum <= 1:
            raise SettingError(f"Expected `unmix_momentum` to be between 0 and 1, but got {self.unmix_momentum}.")


@component(
    "unmix-tns",
    "statistics",
    "mix each sample's statistics into 16 moving ones (UnMix-TNS, Tomar et al. 2024)",
    alone=True,
    part=True,
)
class UnmixTns(MovedBySamples):
    """Components `mean` and `std`, (K, C). Features without space, (B, C), meet the source's statistics."""

    Options = UnmixOptions
    defaults_by_preset: ClassVar[Mapping[str, Mapping[str, Any]]] = {"imagenet-c": {"unmix_batch": 16}}
    needs_statistics = True
    synchronises = False
    bakes = False

    mean: Tensor
    std: Tensor

    def reset(self) -> None:
        """Start around the source; the draws depend on the seed and the place of the layer alone."""
        self.discard()
        self._own = self.settings.options(UnmixOptions)
        count, source = self._own.unmix_components, self.source
        if source.momentum is None and self._own.unmix_momentum is None:
            raise ModelError(
                f"Layer {self._name!r} averages over all batches (momentum=None), and UnMix-TNS takes its momentum "
                "from the layer. Give unmix_momentum=0.1."
            )
        assert source.running_mean is not None
        assert source.running_var is not None
        noise = torch.randn(count, source.num_features, generator=self._generator())
        mean = at_least_float32(source.running_mean)
        std = at_least_float32(source.running_var).sqrt()
        spread = SPREAD if count > 1 else 0.0
        between = math.sqrt(spread * count / max(count - 1, 1))
        self.mean = mean + between * std * noise.to(mean)
        self.std = (math.sqrt(1 - spread) * std).repeat(count, 1)

    def _generator(self) -> torch.Generator:
        """Return the random numbers of this place; a seed counts by its lower 32 bits, so places draw theirs first."""
        generator = torch.Generator().manual_seed(self._own.seed)
        of_places = torch.randint(2**32, (self._place + 1,), generator=generator)
        return torch.Generator().manual_seed(int(of_places[-1]))

    def frozen(self, x: Tensor) -> Tensor:
        """Normalise each sample with its mixture."""
        return self._normalised(x)[0]

    def observe(self, x: Tensor) -> Tensor:
        """Normalise, and keep what the components move by."""
        y, found = self._normalised(x)
        if found is not None:
            self._seen.append(found)
        return y

    def replay(self, x: Tensor) -> Tensor:
        """Normalise as `observe` did."""
        return self._normalised(x)[0]

    def _normalised(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor] | None]:
        """Return the normalised features, and of each sample p, (B, K), mean and variance, (B, C)."""
        if x.dim() == 2:
            source = self.inherited()
            assert source is not None
            return eval_norm(x, *self._affine, *source), None
        with torch.autocast(x.device.type, enabled=False):
            mean, var = sample_statistics(x)
            p = assignment(mean.detach(), self.mean)
            mixed = mixture(p, mean, var, self.mean, self.std**2)
            y = normalised(x, *self._affine, *mixed, self._eps)
        return y, (p, mean.detach(), var.detach())

    def measured(self) -> Iterable[Tensor]:
        """The statistics of the samples that were observed."""
        return (t for found in self._seen for t in found)

    def commit(self) -> None:
        """Move each component by the samples that are like it."""
        for p, mean, var in self._seen:
            given = self._own.unmix_momentum
            momentum = given if given is not None else self.source.momentum
            assert momentum is not None
            rate = 1 - (1 - momentum) ** (len(p) / self._own.unmix_batch)
            with torch.autocast(p.device.type, enabled=False):
                self.mean = moved(self.mean, p, mean, rate)
                self.std = moved(self.std**2, p, var, rate).sqrt()
        self.discard()

    def fits(self, state: Mapping[str, Tensor]) -> bool:
        """Whether such a layer may have remembered it."""
        return state.keys() == {"mean", "std"} and all(t.shape == self.mean.shape for t in state.values())


def assignment(mean: Tensor, means: Tensor) -> Tensor:
    """Return p, (B, K): how like each component a sample is.

    Args:
        mean: of each sample, (B, C).
        means: of the components, (K, C).
    """
    return (F.normalize(mean, dim=1) @ F.normalize(means, dim=1).T / TEMPERATURE).softmax(1)


def mixture(p: Tensor, mean: Tensor, var: Tensor, means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance that each sample is normalised with, (B, C), without a tensor of (B, K, C).

    Args:
        p: of each sample, (B, K).
        mean: of each sample, (B, C).
        var: likewise.
        means: of the components, (K, C).
        variances: likewise.
    """
    count, rest = len(means), 1 - p
    centre = means.mean(0)  # the variance is a difference of squares: keep these small
    m, mu = mean - centre, means - centre
    share = p.sum(1, keepdim=True)  # 1
    mixed = (rest @ mu + share * m) / count
    squares = rest**2 @ mu**2 + 2 * m * ((p * rest) @ mu) + (p**2).sum(1, keepdim=True) * m**2
    between = (squares / count - mixed**2).clamp(min=0)  # below 0 by rounding alone
    return mixed + centre, (rest @ variances + share * var) / count + between


def moved(components: Tensor, p: Tensor, found: Tensor, rate: float) -> Tensor:
    """Return c_k + λ mean_b p_bk (v_b − c_k), (K, C).

    Args:
        components: c, (K, C).
        p: (B, K).
        found: v, of each sample, (B, C).
        rate: λ.
    """
    return components + rate / len(p) * (p.T @ found - p.sum(0).unsqueeze(1) * components)
