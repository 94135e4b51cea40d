"""Which share of the stream's statistics is best, found without labels.

Every now and then all candidates answer the same batch. Of each is kept, forgetting slowly,

    h  the mean entropy of its predictions,          g  the entropy of their mean, and
    e  the log-likelihood of the order of its answers over none (sticky.py), per sample,

and the candidate with the largest g − h + e answers from then on: the one whose answers say most. g − h, the mutual
information of image and class, is right on shuffled streams, also where the source is surely wrong; on dependent ones
it takes a true lack of classes for a failing source. There e is right: where neighbours are alike, so are right answers
to them, and errors are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .norms.anchored import SHARES, Anchored
from .norms.statistics import at_least_float32
from .settings import Settings
from .sticky import TEMPERATURES, Array, evidence_of, tempered
from .subject import Subject

PRIOR = 256.0
"""Samples, spread evenly over the classes, that g starts with: on a dependent stream it knows little at first."""
PRIOR_OF_ORDER = 2.0
"""The same for e: with 30, a failing source that always says the same looks as if classes stayed, in small batches."""
MEMORY = 512
"""Samples over which h, g and e are forgotten (to 1/e), of those that were compared."""
LONGEST = 16
"""Batches between two comparisons, at most; at first every batch, later as many as a quarter of those so far."""


@dataclass(frozen=True)
class Memory:
    """What was counted: by slot, but for the number of samples and of batches."""

    slot: int = 0
    batches: int = 0
    due: int = 0
    samples: float = 0.0
    entropy: tuple[float, ...] = (0.0,) * len(SHARES)
    evidence: tuple[float, ...] = (0.0,) * len(SHARES)
    updates: tuple[int, ...] = (0,) * len(SHARES)
    last: tuple[int, ...] = (0,) * len(SHARES)
    predictions: Array = field(default_factory=lambda: np.zeros((len(SHARES), len(TEMPERATURES), 0), np.float32))


class Shares:
    """Chooses the slot of all anchored layers of one model."""

    def __init__(self, subject: Subject, settings: Settings) -> None:
        self._phase, self._alpha = subject.phase, settings.alpha
        self._layers = [norm for norm in subject.norms.values() if isinstance(norm, Anchored)]
        self.reset()

    def reset(self) -> None:
        """Go back to the source."""
        self.memory = self._next = Memory()
        self._phase.slot = 0

    @property
    def share(self) -> float:
        """M of now."""
        return SHARES[self.memory.slot]

    def choose(self, run: Callable[[], Tensor]) -> Tensor | None:
        """Choose the slot of a batch; return its logits if the candidates were compared for it.

        Args:
            run: runs the model on the batch, without gradients, as the layers' slot says.
        """
        now = self.memory
        met = [now.slot]
        chosen = None
        if now.batches >= now.due:
            logits = [self._run(slot, run) for slot in range(len(SHARES))]
            now = self._compared(logits)
            chosen, met = logits[now.slot], list(range(len(SHARES)))
        self._phase.slot = now.slot
        gap = [now.batches - last for last in now.last]
        rates = [max(1 / (n + 1), 1 - self._alpha ** (1 + g)) for n, g in zip(now.updates, gap, strict=True)]
        self._phase.rates = tuple(rates)
        self._next = replace(
            now,
            batches=now.batches + 1,
            updates=tuple(n + (slot in met) for slot, n in enumerate(now.updates)),
            last=tuple(now.batches + 1 if slot in met else n for slot, n in enumerate(now.last)),
        )
        return chosen

    def again(self) -> None:
        """The chosen slot is about to run on the batch once more."""
        for layer in self._layers:
            layer.drop(self._phase.slot)

    def commit(self) -> None:
        """Keep what `choose` found."""
        self.memory = self._next

    def settle(self) -> None:
        """Answer with the slot that was committed last."""
        self._phase.slot = self.memory.slot

    def _run(self, slot: int, run: Callable[[], Tensor]) -> Tensor:
        self._phase.slot = slot
        return run()

    def _compared(self, logits: list[Tensor]) -> Memory:
        now, ranks = self.memory, self._phase.ranks
        joined = [one if ranks is None else ranks.join(at_least_float32(one)) for one in logits]
        log_p = [one.detach().float().log_softmax(1).cpu().numpy() for one in joined]
        due = now.batches + max(1, min(LONGEST, now.batches // 4))
        if not all(np.isfinite(one.max(1)).all() for one in log_p) or not len(log_p[0]):
            return replace(now, due=due)
        p = np.stack([tempered(one) for one in log_p])  # (slots, T, B, K)
        size, classes = p.shape[2:]
        before = now.predictions if now.samples else np.zeros((*p.shape[:2], classes), np.float32)
        keep = math.exp(-size / MEMORY)
        predictions, samples = keep * before + p.sum(2), keep * now.samples + size
        q, q_lately = ((predictions + n / classes) / (samples + n) for n in (PRIOR, PRIOR_OF_ORDER))
        entropy = [keep * old + float(_entropy(own[0]).sum()) for old, own in zip(now.entropy, p, strict=True)]
        evidence = [keep * old + evidence_of(*pair) for old, *pair in zip(now.evidence, p, q_lately, strict=True)]
        scores = [float(_entropy(own[0])) + (e - h) / samples for own, h, e in zip(q, entropy, evidence, strict=True)]
        return replace(
            now,
            slot=int(np.argmax(scores)),
            due=due,
            samples=samples,
            entropy=tuple(entropy),
            evidence=tuple(evidence),
            predictions=predictions,
        )

    def remembered(self) -> dict[str, Any]:
        """Return what must be saved."""
        m = self.memory
        if not m.batches:
            return {}
        return {
            "counts": [m.slot, m.batches, m.due, *m.updates, *m.last],
            "sums": torch.tensor([m.samples, *m.entropy, *m.evidence], dtype=torch.float64),
            "predictions": torch.from_numpy(m.predictions.copy()),
        }

    def fits(self, saved: Mapping[str, Any], classes: int | None) -> bool:
        """Whether such a choice may have remembered this."""
        if not saved:
            return True
        slots = len(SHARES)
        return (
            saved.keys() == {"counts", "sums", "predictions"}
            and len(saved["counts"]) == 3 + 2 * slots
            and all(isinstance(n, int) and n >= 0 for n in saved["counts"])
            and saved["counts"][0] < slots
            and saved["sums"].shape == (1 + 2 * slots,)
            and saved["predictions"].shape in ((slots, len(TEMPERATURES), classes), (slots, len(TEMPERATURES), 0))
        )

    def recall(self, saved: Mapping[str, Any]) -> None:
        """Go on from what was remembered."""
        self.reset()
        if saved:
            slots = len(SHARES)
            slot, batches, due, *counts = saved["counts"]
            samples, *sums = saved["sums"].tolist()
            self.memory = Memory(
                slot, batches, due, samples, tuple(sums[:slots]), tuple(sums[slots:]),
                tuple(counts[:slots]), tuple(counts[slots:]), saved["predictions"].float().cpu().numpy(),
            )  # fmt: skip
            self.settle()


def _entropy(p: Array) -> Array:
    found: Array = -(p * np.log(np.maximum(p, 1e-30))).sum(-1)
    return found
