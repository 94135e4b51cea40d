"""Losses and sample weights as functions of log-probabilities; `delta_tta.functional` is where to import them from.

Losses are those of each sample, (B,), and carry gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

MINIMUM = -1e4
"""A log-probability below which p is 0 in every floating-point type."""

MOST_CERTAIN = 0.99
"""Probabilities are clipped here in the likelihood ratio, whose gradient would vanish or explode beyond."""


def entropy(log_p: Tensor) -> Tensor:
    """Return H = −Σ p log p, (B,): TENT's loss (Wang et al. 2021). A class at −∞ adds nothing.

    Args:
        log_p: log-probabilities, (B, K).

    Examples:
        >>> entropy(torch.tensor([[0.5, 0.5], [0.8, 0.2]]).log())
        tensor([0.6931, 0.5004])
    """
    return -(log_p.exp() * log_p.clamp(min=MINIMUM)).sum(1)


def marginal_entropy(log_p: Tensor) -> Tensor:
    """Return the entropy of the mean prediction, a scalar: MEMO's loss of the copies of an image (Zhang et al. 2022).

    Args:
        log_p: log-probabilities of the copies, (N, K).

    Examples:
        >>> marginal_entropy(torch.tensor([[1.0, 0.0], [0.0, 1.0]]).log())
        tensor(0.6931)
    """
    mean = log_p.exp().mean(0)
    return -(mean * mean.clamp(min=torch.finfo(mean.dtype).tiny).log()).sum()


def pseudo_label_cross_entropy(log_p: Tensor, labels: Tensor | None = None) -> Tensor:
    """Return −log p[y*], (B,): the loss of PL (Lee 2013), before its threshold.

    Args:
        log_p: log-probabilities, (B, K).
        labels: y*, (B,); None for the most probable class.

    Examples:
        >>> pseudo_label_cross_entropy(torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]).log())
        tensor([0.6931, 0.2231])
    """
    labels = log_p.detach().argmax(1) if labels is None else labels
    return -log_p.gather(1, labels.unsqueeze(1)).squeeze(1)


def cross_entropy(p: Tensor, log_q: Tensor) -> Tensor:
    """Return −Σ p log q, (B,).

    Args:
        p: probabilities, (B, K).
        log_q: log-probabilities, (B, K); a class at −∞ counts as −10,000.

    Examples:
        >>> cross_entropy(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.5]]).log())
        tensor([0.6931])
    """
    return -(p * log_q.clamp(min=MINIMUM)).sum(1)


def symmetric_cross_entropy(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return −½ Σ (q log p + p log q), (B,): ROID's consistency of two views (Marsden et al. 2024).

    Args:
        log_p: log-probabilities of one view, (B, K).
        log_q: those of the other, (B, K).

    Examples:
        >>> one, other = torch.tensor([[[0.5, 0.5]], [[0.8, 0.2]]]).log()
        >>> symmetric_cross_entropy(one, other)
        tensor([0.8047])
    """
    p, q = log_p.exp(), log_q.exp()
    return -(q * log_p.clamp(min=MINIMUM) + p * log_q.clamp(min=MINIMUM)).sum(1) / 2


def soft_likelihood_ratio(log_p: Tensor) -> Tensor:
    """Return −Σ p log(p / (1 − p) + 1e-5), (B,), with p clipped at 0.99: ROID's loss (Marsden et al. 2024).

    Args:
        log_p: log-probabilities, (B, K).

    Examples:
        >>> soft_likelihood_ratio(torch.tensor([[0.5, 0.5], [0.8, 0.2]]).log())
        tensor([-1.0014e-05, -8.3179e-01])
    """
    p = log_p.exp().clamp(max=MOST_CERTAIN)
    return -(p * (p / (1 - p) + 1e-5).log()).sum(1)


def divergence_from_uniform(q: Tensor) -> Tensor:
    """Return KL(q ‖ uniform) = Σ q log q + ln K, a scalar: the penalty of KL-div (Mummadi et al. 2021).

    Args:
        q: the mean prediction, (K,).

    Examples:
        >>> divergence_from_uniform(torch.tensor([1.0, 0.0]))
        tensor(0.6931)
    """
    return (q * q.clamp(min=torch.finfo(q.dtype).tiny).log()).sum() + math.log(len(q))


def entropy_weights(entropies: Tensor, margin: float) -> Tensor:
    """Return e^{E0 − H}, (B,): the surer a sample, the more it weighs (ETA and EATA, Niu et al. 2022).

    Args:
        entropies: H, (B,), without gradient.
        margin: E0; ETA takes 0.4 ln K, and trains on samples with H < E0.

    Examples:
        >>> entropy_weights(torch.tensor([0.0, 0.7]), margin=0.7)
        tensor([2.0138, 1.0000])
    """
    return (margin - entropies).exp()


def unlike_average(p: Tensor, average: Tensor, margin: float) -> Tensor:
    """Return which samples have |cos(m, p)| < d, (B,): they say what was not said before (ETA, Niu et al. 2022).

    Args:
        p: probabilities, (B, K).
        average: m, the moving average of the predictions that trained, (K,).
        margin: d.

    Examples:
        >>> unlike_average(torch.tensor([[1.0, 0.0], [0.1, 0.9]]), torch.tensor([0.9, 0.1]), margin=0.4)
        tensor([False,  True])
    """
    return F.cosine_similarity(average.unsqueeze(0), p, dim=1).abs() < margin


def fisher_penalty(
    parameters: Mapping[str, Tensor], start: Mapping[str, Tensor], fisher: Mapping[str, Tensor]
) -> Tensor:
    """Return Σ F (θ − θ_0)², a scalar: EATA adds it, so that what matters to the source stays (Niu et al. 2022).

    Args:
        parameters: θ by name.
        start: θ_0 by name.
        fisher: F by name, the mean squared gradient on source images.

    Examples:
        >>> here, source, fisher = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0]), torch.tensor([5.0, 3.0])
        >>> fisher_penalty({"weight": here}, {"weight": source}, {"weight": fisher})
        tensor(3.)
    """
    return torch.stack([(fisher[n].to(p) * (p - start[n].to(p)) ** 2).sum() for n, p in parameters.items()]).sum()


def roid_weights(p: Tensor, entropies: Tensor, average: Tensor, temperature: float) -> Tensor:
    """Return w, (B,), without gradient; 0 for samples that do not train (ROID, Marsden et al. 2024).

    w = exp(r(1 − cos(p̄, p)) · r(−H) / T), 0 where the first factor is below its mean; r maps a batch to 0 … 1.
    The most diverse sample always trains.

    Args:
        p: probabilities, (B, K), without gradient.
        entropies: H, (B,), without gradient.
        average: p̄, the moving average of the mean prediction, (K,).
        temperature: T.

    Examples:
        >>> p = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.9, 0.1]])
        >>> roid_weights(p, entropy(p.log()), torch.tensor([0.5, 0.5]), temperature=1.0)
        tensor([0.0000, 2.7183, 1.4878])
    """
    diversity = to_unit_range(1 - F.cosine_similarity(average.unsqueeze(0), p, dim=1))
    certainty = to_unit_range(-entropies)
    return (diversity * certainty / temperature).exp().masked_fill(diversity < diversity.mean(), 0)


def to_unit_range(values: Tensor) -> Tensor:
    """Map the least to 0 and the greatest to 1; where all are the same, all to 0."""
    low, high = values.aminmax()
    return torch.where(high > low, (values - low) / (high - low), torch.zeros_like(values))
