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
from ..norms.statistics import at_least_float32
from ..registry import State, component
from ..rules.mirror import counts_after, weights
from .base import Postprocess

SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Types that torch cannot flip, and those of the same size that it can."""


def mirror_images(x: Tensor) -> Tensor | None:
    """Return the mirror images of a batch (B, C, …, W); None for input without height and width."""
    if x.dim() < 4:
        return None
    signed = SIGNED.get(x.dtype)
    return x.flip(-1) if signed is None else x.view(signed).flip(-1).view(x.dtype)


@component("mirror", "postprocess", "average the less sure answers with those to the mirror images", part=True)
class Mirror(Postprocess):
    """Remembers Σ p p' and Σ p² of each class, and when to mirror a whole batch again."""

    runs_parts = True
    synchronises = True
    bakes = True

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
        weight = self._weights(self.pending)[own.argmax(1)].log().unsqueeze(1)  # (b, 1)
        mean = torch.logaddexp(own, other + weight) - torch.logaddexp(torch.zeros_like(weight), weight)
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

    @staticmethod
    def _weights(memory: State) -> Tensor:
        """Return w of each class, (K,)."""
        found: Tensor = weights(memory["agreed"], memory["weighed"])
        return found
