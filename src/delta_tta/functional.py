"""What the methods compute, as plain functions: nothing is remembered, and nothing that is given is changed.

| of | functions |
|---|---|
| TBR | `tbr` |
| DOT | `dot_weights`, `class_frequencies` |
| anchored statistics | `anchored_statistics`, `pooled_update` |
| the sticky filter | `sticky_filter`, `forward_filters`, `tempered` |
| evidence without labels | `pair_evidence`, `order_evidence` |
| mirror images | `mirror_weights`, `mirror_mean` |
| LAME | `affinity`, `laplacian` |
| losses | `entropy` (TENT), `pseudo_label_cross_entropy` (PL), `marginal_entropy` (MEMO), `cross_entropy` (CoTTA), |
| | `soft_likelihood_ratio` and `symmetric_cross_entropy` (ROID) |
| which samples train, and how much | `entropy_weights` and `unlike_average` (ETA, EATA), `roid_weights` |
| penalties | `fisher_penalty` (EATA), `divergence_from_uniform` (KL-div) |
| the paper's streams | `shuffled_indices`, `imbalanced_indices`, `dependent_indices`, `Draws` |

The classes behind `adapt` call these very functions, so a method built from them is the method. One step of DELTA:

Examples:
    >>> x, mean, std = torch.tensor([[0.0, 2.0], [2.0, 0.0], [1.0, 0.0]]), torch.zeros(2), torch.ones(2)
    >>> weight, bias = torch.ones(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    >>> z = torch.tensor([0.5, 0.5])
    >>> log_p = tbr(x, weight, bias, mean, std).log_softmax(1)
    >>> p = log_p.detach().exp()
    >>> (dot_weights(p.argmax(1), z) * entropy(log_p)).mean().backward()
    >>> z = class_frequencies(z, p, lam=0.9)
    >>> z, weight.grad
    (tensor([0.5077, 0.4923]), tensor([-0.2055, -0.1400]))
"""

# This file imports norms/ and postprocess/, so their functions stay beside their classes. reweighting.py imports this
# file. A part of the package that did both would be a cycle.
from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .errors import InputError
from .evidence import TINY, Array, forward_filters, likelihood, tempered
from .evidence import of_order as order_evidence
from .evidence import of_pairs as pair_evidence
from .losses import (
    cross_entropy,
    divergence_from_uniform,
    entropy,
    entropy_weights,
    fisher_penalty,
    marginal_entropy,
    pseudo_label_cross_entropy,
    roid_weights,
    soft_likelihood_ratio,
    symmetric_cross_entropy,
    unlike_average,
)
from .norms.anchored import anchored_statistics, pooled_update
from .norms.tbr import tbr
from .postprocess.lame import affinity, laplacian
from .postprocess.mirror import mirror_mean, mirror_weights
from .rules.filters import filtered_beliefs
from .streams import Draws, dependent_indices, imbalanced_indices, shuffled_indices

__all__ = [
    "Draws",
    "affinity",
    "anchored_statistics",
    "class_frequencies",
    "cross_entropy",
    "dependent_indices",
    "divergence_from_uniform",
    "dot_weights",
    "entropy",
    "entropy_weights",
    "fisher_penalty",
    "forward_filters",
    "imbalanced_indices",
    "laplacian",
    "marginal_entropy",
    "mirror_mean",
    "mirror_weights",
    "order_evidence",
    "pair_evidence",
    "pooled_update",
    "pseudo_label_cross_entropy",
    "roid_weights",
    "shuffled_indices",
    "soft_likelihood_ratio",
    "sticky_filter",
    "symmetric_cross_entropy",
    "tbr",
    "tempered",
    "unlike_average",
]

EPSILON = 1e-8
"""ε of Algorithm 1, line 6; the paper gives no value."""


def dot_weights(answers: Tensor, z: Tensor, eps: float = EPSILON) -> Tensor:
    """Return DOT's sample weights, (B,), with mean 1. Frequent classes get smaller weights.

    Lines 5 to 7 of Algorithm 1 (Zhao, Chen, Xia 2023): w_b ∝ 1 / (z_{y_b} + ε), or, where the answers are
    probabilities, the expectation of that, w_b ∝ Σ_k p_bk / (z_k + ε).

    Args:
        answers: predicted classes, (B,), of an integer type; or probabilities, (B, K).
        z: class frequencies before this batch, (K,).
        eps: ε.

    Examples:
        >>> z = torch.tensor([0.75, 0.25])
        >>> dot_weights(torch.tensor([0, 1]), z)
        tensor([0.5000, 1.5000])
        >>> dot_weights(torch.tensor([[0.5, 0.5], [0.0, 1.0]]), z)
        tensor([0.8000, 1.2000])
    """
    rarity = 1 / (z + eps)  # (K,)
    w = answers @ rarity if answers.is_floating_point() else rarity[answers]
    return w / w.mean()


def class_frequencies(z: Tensor, p: Tensor, lam: float) -> Tensor:
    """Return z after a batch, (K,): line 10 of Algorithm 1, z_t = λ z_{t−1} + (1 − λ) mean_b p_b.

    Args:
        z: before the batch, (K,); uniform before the first.
        p: probabilities, (B, K).
        lam: λ, the share of the old that stays.

    Examples:
        >>> class_frequencies(torch.tensor([0.5, 0.5]), torch.tensor([[1.0, 0.0], [0.6, 0.4]]), lam=0.9)
        tensor([0.5300, 0.4700])
    """
    return torch.lerp(p.mean(0), z, lam)


def sticky_filter(
    p: npt.ArrayLike,
    stay: float,
    q: npt.ArrayLike,
    *,
    temperature: float = 1.0,
    smooth: bool = True,
    start: npt.ArrayLike | None = None,
) -> Array:
    """Return the probabilities of a sequence of samples, (N, K), knowing that a class stays in view for a while.

    A hidden Markov model: the class stays with probability s, or else is drawn from q. With a the belief before a
    sample and l = p / q its likelihood, the belief after it is

        a ← (s a + (1 − s) q) l / Z          with Z such that it sums to 1,

    and smooth answers are a · b / Σ a b, with b = 1 at the last sample and before it b ← s l b + (1 − s) Σ q l b.
    At s = 0 and temperature 1 they are p. `sticky` is the mean of such filters, weighed by how well each has predicted
    the stream.

    Args:
        p: probabilities of the samples in the order of time, (N, K).
        stay: s, at least 0 and below 1.
        q: how frequent the classes are, for all samples or for each, (K,) or (N, K), above 0; scaled to sum to 1.
        temperature: T, above 0; p^(1/T), renormalised, takes the place of p.
        smooth: whether the answer to a sample also uses the samples behind it.
        start: the belief before the first sample, (K,); None for q. Pass the last causal answer to continue.

    Examples:
        A glimpse of another class between sure answers is not believed:

        >>> p = [[0.9, 0.1], [0.4, 0.6], [0.9, 0.1]]
        >>> sticky_filter(p, stay=0.8, q=[0.5, 0.5]).round(2)
        array([[0.95, 0.05],
               [0.93, 0.07],
               [0.95, 0.05]], dtype=float32)
        >>> sticky_filter(p, stay=0.8, q=[0.5, 0.5], smooth=False).round(2)
        array([[0.9 , 0.1 ],
               [0.75, 0.25],
               [0.95, 0.05]], dtype=float32)
    """
    answers = _probabilities("p", p, 2)
    frequencies = _probabilities("q", q, None, least=TINY)
    before = frequencies.reshape(-1, frequencies.shape[-1])[:1] if start is None else _probabilities("start", start, 1)
    size, classes = answers.shape
    if frequencies.shape not in ((classes,), (size, classes)) or before.shape[-1] != classes:
        raise InputError(
            f"Expected `q` for {classes} classes, ({classes},) or ({size}, {classes}), and `start` likewise, but got "
            f"{frequencies.shape} and {before.shape}."
        )
    if not 0 <= np.float32(stay) < 1 or not 0 < temperature < np.inf:
        raise InputError(
            f"Expected `stay` from 0 to below 1 and `temperature` above 0, but got {stay!r} and {temperature!r}."
        )
    with np.errstate(divide="ignore"):  # what is impossible stays impossible
        met = tempered(np.log(answers), np.array([temperature], np.float32))
    own = frequencies.reshape(1, -1, classes)
    s = np.array([[stay]], np.float32)
    return filtered_beliefs(likelihood(met, own), own, before.reshape(1, classes), s, smooth)[:, 0]


def _probabilities(name: str, values: npt.ArrayLike, dimensions: int | None, least: float = 0.0) -> Array:
    """Return them in float32, summing to 1 over the last dimension."""
    found: Array = np.asarray(values, dtype=np.float32)
    fine = found.ndim == dimensions if dimensions else found.ndim in (1, 2)
    fine = fine and found.shape[-1] > 0 and bool(np.isfinite(found).all() and (found >= least).all())
    total = found.sum(-1, keepdims=True) if fine else np.zeros(1, np.float32)
    if not (total > 0).all():
        raise InputError(
            f"Expected `{name}` to be probabilities over classes{', all above 0' * (least > 0)}, but got "
            f"{found.tolist() if found.size < 10 else found.shape}."
        )
    scaled: Array = found / total
    return scaled
