"""Which share of the stream's statistics is best, found without labels.

Every now and then all candidates answer the same batch and its mirror images. The candidate whose answers best foretell
each other answers from then on: those to an image and to its mirror image, and those to neighbours in time
(evidence.py). The first tells most on shuffled streams, both do on dependent ones. While no candidate is
clearly ahead of the source, the source answers.

Where a new domain begins (domain.py), the choice and the statistics of the stream begin anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..engine.model import AdaptedModel
from ..evidence import MEMORY, MEMORY_OF_ANSWERS, TEMPERATURES, Array, of_order, of_pairs, tempered, until_next
from ..norms.anchored import SHARES, Anchored
from ..postprocess.mirror import mirror_images
from ..settings import Settings
from ..tensors import at_least_float32
from .domain import Domain, sharpness

PRIOR = 768.0
"""Samples, spread evenly over the classes, that the mean answers start with. At the start of a dependent stream one
class is in view. Then a source that is right says one thing, and a candidate with statistics of that class many. With
512, the source was left on clean images of one class that filled the first three batches: 8 points lost, now 4."""
PRIOR_OF_ORDER = 2.0
"""The same for the order: with more, a source that fails and always says the same seems to know an order."""
DOUBT = 5.0
"""Nats by which a candidate must be ahead of the source before it answers. With none, one batch of a new class could
lead away from a source that is right: 10 points lost over the first 384 samples of a clean dependent stream."""
BATCH = 64
"""Samples in a batch that moves the averages by 1 − α; smaller ones move them by less. Half as many are enough to be
measured between two comparisons: it costs half."""


def best_slot(evidence: Sequence[float], doubt: float = DOUBT) -> int:
    """Return the candidate with the most evidence, or the source's 0 where none is ahead of it by more than `doubt`."""
    best = int(np.argmax(evidence))
    return best if evidence[best] > evidence[0] + doubt else 0


@dataclass(frozen=True)
class Memory:
    """What was counted: by slot, but for the number of samples and of batches."""

    slot: int = 0
    batches: int = 0
    due: int = 0
    samples: float = 0.0
    prior: float = PRIOR
    evidence: tuple[float, ...] = (0.0,) * len(SHARES)
    updates: tuple[int, ...] = (0,) * len(SHARES)
    last: tuple[int, ...] = (0,) * len(SHARES)
    domain: Domain = field(default_factory=Domain)
    predictions: Array = field(default_factory=lambda: np.zeros((len(SHARES), len(TEMPERATURES), 0), np.float32))


class ShareSelector:
    """Chooses the slot of all anchored layers of one model."""

    def __init__(self, adapted: AdaptedModel, settings: Settings) -> None:
        self._phase, self._alpha = adapted.phase, settings.alpha
        self._layers = [norm for norm in adapted.norms.values() if isinstance(norm, Anchored)]
        self.reset()

    def reset(self) -> None:
        """Go back to the source."""
        self.memory = self._next = Memory()
        self.settle()

    @property
    def share(self) -> float:
        """M of now."""
        return SHARES[self.memory.slot]

    def choose(self, x: Tensor, run: Callable[[Tensor, bool], Tensor]) -> Tensor | None:
        """Choose the slot of a batch; return its logits if the candidates were compared for it.

        Args:
            x: the batch.
            run: runs the model, without gradients, as the layers' slot says; the layers observe if told so.
        """
        now = self._in_domain(x)
        met = [now.slot]
        chosen = None
        size = self._size(x)
        self._phase.half = now.batches < now.due and size >= BATCH / 2
        if now.batches >= now.due:
            logits = [self._run(slot, lambda: run(x, True)) for slot in range(len(SHARES))]
            mirrored = mirror_images(x)
            others = None
            if mirrored is not None:
                others = [self._run(slot, lambda: run(mirrored, False)) for slot in range(len(SHARES))]
            now = self._compared(now, logits, others)
            chosen, met = logits[now.slot], list(range(len(SHARES)))
        self._phase.slot = now.slot
        share = min(1.0, size / BATCH)
        gap = [now.batches - last for last in now.last]
        rates = [max(1 / (n + 1), 1 - self._alpha ** (share * (1 + g))) for n, g in zip(now.updates, gap, strict=True)]
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
        self.memory, self._phase.anew = self._next, False

    def settle(self) -> None:
        """Answer with the slot that was committed last."""
        self._phase.slot, self._phase.anew = self.memory.slot, False

    def _size(self, x: Tensor) -> float:
        """Return the number of samples of all ranks."""
        ranks = self._phase.ranks
        if ranks is None:
            return len(x)
        (total,) = ranks.add([torch.tensor(float(len(x)), device=x.device)])
        assert total is not None
        return float(total)

    def _run(self, slot: int, run: Callable[[], Tensor]) -> Tensor:
        self._phase.slot = slot
        return run()

    def _in_domain(self, x: Tensor) -> Memory:
        """Return what is remembered of the domain of this batch: nothing but the batch where a new one begins."""
        now, found = self.memory, sharpness(x, self._phase.ranks)
        self._phase.anew = found is not None and now.domain.left_by(found)
        if found is None:
            return now
        if self._phase.anew:
            return Memory(domain=Domain().with_batch(found))
        return replace(now, domain=now.domain.with_batch(found))

    def _compared(self, now: Memory, logits: list[Tensor], mirrored: list[Tensor] | None) -> Memory:
        found = [self._log_p(logits), [] if mirrored is None else self._log_p(mirrored)]
        size, classes = found[0][0].shape
        early = (now.batches + 1) * size < PRIOR / 2
        due = now.batches + (1 if early else until_next(now.batches))
        if not size or not all(np.isfinite(one.max(1)).all() for one in (*found[0], *found[1])):
            return replace(now, due=due)
        p, others = ([tempered(one) for one in answers] for answers in found)  # each (T, B, K)
        keep, keep_answers = (math.exp(-size / memory) for memory in (MEMORY, MEMORY_OF_ANSWERS))
        samples, prior = keep_answers * now.samples + size, keep_answers * now.prior
        before = now.predictions if now.samples else np.zeros((len(p), len(TEMPERATURES), classes), np.float32)
        predictions = keep_answers * before + np.stack([own.sum(1) for own in p])
        q, q_of_order = ((predictions + n / classes) / (samples + n) for n in (prior, PRIOR_OF_ORDER))
        evidence = [keep * old + of_order(*pair) for old, *pair in zip(now.evidence, p, q_of_order, strict=True)]
        if others:
            evidence = [old + of_pairs(*three) for old, *three in zip(evidence, p, others, q, strict=True)]
        return replace(
            now,
            slot=best_slot(evidence),
            due=due,
            samples=samples,
            prior=prior,
            evidence=tuple(evidence),
            predictions=predictions,
        )

    def _log_p(self, logits: list[Tensor]) -> list[Array]:
        """Return the log-probabilities of the samples of all ranks."""
        ranks = self._phase.ranks
        joined = [one if ranks is None else ranks.join(at_least_float32(one)) for one in logits]
        return [one.detach().float().log_softmax(1).cpu().numpy() for one in joined]

    def remembered(self) -> dict[str, Any]:
        """Return what must be saved."""
        m = self.memory
        if not m.batches:
            return {}
        return {
            "counts": [m.slot, m.batches, m.due, *m.updates, *m.last],
            "sums": torch.tensor([m.samples, m.prior, *m.evidence], dtype=torch.float64),
            "predictions": torch.from_numpy(m.predictions.copy()),
            "domain": torch.from_numpy(m.domain.as_array()),
        }

    def fits(self, saved: Mapping[str, Any], classes: int | None) -> bool:
        """Whether such a choice may have remembered this."""
        if not saved:
            return True
        slots = len(SHARES)
        return (
            saved.keys() == {"counts", "sums", "predictions", "domain"}
            and len(saved["counts"]) == 3 + 2 * slots
            and all(isinstance(n, int) and n >= 0 for n in saved["counts"])
            and saved["counts"][0] < slots
            and saved["sums"].shape == (2 + slots,)
            and len(saved["domain"]) == 3
            and saved["predictions"].shape in ((slots, len(TEMPERATURES), classes), (slots, len(TEMPERATURES), 0))
        )

    def recall(self, saved: Mapping[str, Any]) -> None:
        """Go on from what was remembered."""
        self.reset()
        if saved:
            slots = len(SHARES)
            slot, batches, due, *counts = saved["counts"]
            samples, prior, *evidence = saved["sums"].tolist()
            self.memory = Memory(
                slot, batches, due, samples, prior, tuple(evidence),
                tuple(counts[:slots]), tuple(counts[slots:]), Domain.of(saved["domain"].float().cpu().numpy()),
                saved["predictions"].float().cpu().numpy(),
            )  # fmt: skip
            self.settle()
