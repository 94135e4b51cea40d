"""A second opinion: the answer to an image is averaged with the answer to its mirror image.

Only the less sure half of a batch is mirrored: the other answers would hardly change. How much the mirror image counts
is learnt for each class, without labels:

    w(y) = Σ p(y) p'(y) / Σ p(y)²          the answer is (p + w(ŷ) p') / (1 + w(ŷ)), ŷ the class of p,

with p the answer to an image and p' the answer to its mirror image, summed over batches that are mirrored whole every
now and then. The weight is near 1 where mirror images get the same answers. It is near 0 for classes that change in a
mirror, such as letters or arrows, and for models that do not know mirror images.

Averaging over mirror images is as old as the networks (Krizhevsky et al. 2012). New here: the half, and the weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..evidence import MEMORY_OF_ANSWERS
from ..registry import State, component
from ..rules.mirror import counts_after
from ..rules.mirror import weights as weights_of
from ..tensors import at_least_float32
from .base import Postprocess

SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Types that torch cannot flip, and those of the same size that it can."""


def mirror_images(x: Tensor) -> Tensor | None:
    """Return the mirror images of a batch (B, C, …, W); None for input without height and width."""
    if x.dim() < 4:
        return None
    signed = SIGNED.get(x.dtype)
    return x.flip(-1) if signed is None else x.view(signed).flip(-1).view(x.dtype)


def mirror_weights(agreed: Tensor, weighed: Tensor) -> Tensor:
    """Return how much the answer to a mirror image counts where the class is y: w, (K,), at most 1.

    A class that was seen often has its own weight, and others that of all classes together.

    Args:
        agreed: Σ p p' of each class over samples, (K,), p' the answer to the mirror image.
        weighed: Σ p² of each class, (K,).

    Examples:
        Mirror images of the first class get other answers; the second was not seen yet.

        >>> mirror_weights(torch.tensor([30.0, 0.0]), torch.tensor([90.0, 0.0]))
        tensor([0.3333, 0.3333])
    """
    found: Tensor = weights_of(agreed, weighed)
    return found


def mirror_mean(log_p: Tensor, log_mirrored: Tensor, weights: Tensor) -> Tensor:
    """Return log((p + w(ŷ) p') / (1 + w(ŷ))), (B, K), ŷ the class of p.

    Args:
        log_p: log-probabilities of images, (B, K).
        log_mirrored: those of their mirror images, (B, K).
        weights: w, (K,).

    Examples:
        >>> p, mirrored = torch.tensor([[0.6, 0.4]]), torch.tensor([[0.2, 0.8]])
        >>> mirror_mean(p.log(), mirrored.log(), torch.tensor([1.0, 0.5])).exp()
        tensor([[0.4000, 0.6000]])
    """
    weight = weights[log_p.argmax(1)].log().unsqueeze(1)  # (B, 1)
    return torch.logaddexp(log_p, log_mirrored + weight) - torch.logaddexp(torch.zeros_like(weight), weight)


@component("mirror", "postprocess", "average the less sure answers with those to the mirror images", part=True)
class Mirror(Postprocess):
    """Remembers Σ p p' and Σ p² of each class, and when to mirror a whole batch again."""

    runs_parts = True
    synchronises = True
    bakes = True
    on_edge = True

    def __call__(self, x: Tensor, logits: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the averaged logits, (B, K); input without a mirror image is answered without one."""
        mirrored = mirror_images(x)
        if mirrored is None:
            return logits
        log_p = at_least_float32(logits).log_softmax(1)
        unsure = self._unsure(log_p.amax(1))
        whole = not self.memory or int(self.memory["left"]) == 0
        rows = torch.ones_like(unsure) if whole else unsure
        if self.ranks is None and not bool(rows.any()):  # no answer is finite
            return logits
        own, other = log_p[rows], at_least_float32(run(mirrored[rows])).log_softmax(1)
        self.pending = self._next(own, other, whole)
        if not bool(self.pending["weighed"].any()):
            return logits
        mean = mirror_mean(own, other, mirror_weights(self.pending["agreed"], self.pending["weighed"]))
        change = (mean - own).where(own.isfinite() & mean.isfinite() & unsure[rows].unsqueeze(1), 0)
        answers = at_least_float32(logits).clone()
        answers[rows] += change
        return answers.to(logits.dtype)

    def _unsure(self, sure: Tensor) -> Tensor:
        """Return which samples are in the less sure half of the batch, over all ranks, (B,)."""
        everybody = sure if self.ranks is None else self.ranks.join(sure.unsqueeze(1)).squeeze(1)
        if not len(everybody):
            return torch.ones_like(sure, dtype=torch.bool)
        return sure <= everybody.nan_to_num(math.inf).kthvalue((len(everybody) + 1) // 2).values

    def _next(self, own: Tensor, other: Tensor, whole: bool) -> State:
        """Return what is remembered after a batch; only whole ones count, as those are no choice."""
        memory = self.memory
        batches, left = (int(memory["batches"]), int(memory["left"])) if memory else (0, 0)
        counts = dict(zip(("batches", "left"), counts_after(batches, left, whole), strict=True))
        sums = {key: memory[key] for key in ("agreed", "weighed")} if memory else {}
        if whole:
            p, mirrored = (t.exp().where((own + other).amax(1, keepdim=True).isfinite(), 0) for t in (own, other))
            news: list[Tensor | None] = [(p * mirrored).sum(0), (p * p).sum(0), p.new_tensor(float(len(p)))]
            if self.ranks is not None:
                news = self.ranks.add(news)
            agreed, weighed, samples = (new for new in news if new is not None)
            keep = (-samples / MEMORY_OF_ANSWERS).exp()
            sums = {
                key: new if not memory else keep * memory[key] + new
                for key, new in (("agreed", agreed), ("weighed", weighed))
            }
        return {**sums, **{key: torch.tensor(float(n)) for key, n in counts.items()}}
