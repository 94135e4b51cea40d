"""Which share of the stream's statistics is best, found without labels.

Every now and then all candidates answer the same batch and its mirror images. The candidate whose answers best foretell
each other answers from then on: those to an image and to its mirror image, and those to neighbours in time
(evidence.py). The first tells most on shuffled streams, both do on dependent ones. While no candidate is
clearly ahead of the source, the source answers.

Where a new domain begins (rules/domain.py), the choice and the statistics of the stream begin anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..engine.model import AdaptedModel
from ..evidence import TEMPERATURES, Array
from ..norms.anchored import Anchored
from ..options import AlphaOptions
from ..postprocess.mirror import mirror_images
from ..rules.answers import MeanAnswers, fits
from ..rules.domain import Domain, sharpness_of_batch, sharpness_of_samples
from ..rules.shares import SHARES, Memory
from ..settings import Settings
from ..tensors import at_least_float32
from .sharpness import differences


class ShareSelector:
    """Chooses the slot of all anchored layers of one model."""

    def __init__(self, adapted: AdaptedModel, settings: Settings) -> None:
        self._phase, self._alpha = adapted.phase, settings.options(AlphaOptions).alpha
        self._layers = [norm for norm in adapted.norms.values() if isinstance(norm, Anchored)]
        self.reset()

    def reset(self) -> None:
        """Go back to the source."""
        self.memory = self._next = Memory()
        self.of_source: Tensor | None = None  # of the last batch, where the candidates answered it
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
        found = differences(x, self._phase.ranks)
        now, self._phase.anew = self.memory.with_sharpness(None if found is None else sharpness_of_batch(found))
        met = [now.slot]
        chosen = self.of_source = None
        size = self._size(x)
        self._phase.half = now.measures_half(size)
        if now.compares:
            logits = [self._run(slot, lambda: run(x, True)) for slot in range(len(SHARES))]
            mirrored = mirror_images(x)
            others = None
            if mirrored is not None:
                others = [self._run(slot, lambda: run(mirrored, False)) for slot in range(len(SHARES))]
            now = self._compared(now, logits, others, None if found is None else sharpness_of_samples(found))
            self.of_source = logits[0]
            chosen, met = logits[now.slot], list(range(len(SHARES)))
        self._phase.slot = now.slot
        self._phase.rates = now.rates(size, self._alpha)
        self._next = now.after(met)
        return chosen

    def source_of(self, x: Tensor) -> Tensor | None:
        """Return the source's logits of the batch, once, if the candidates answered it last."""
        found, self.of_source = self.of_source, None
        return found if found is not None and len(found) == len(x) else None

    def again(self) -> None:
        """The chosen slot is about to run on the batch once more."""
        for layer in self._layers:
            layer.drop(self._phase.slot)

    def commit(self) -> None:
        """Keep what `choose` found."""
        self.memory = self._next
        self.settle()

    def settle(self) -> None:
        """Answer with the slot that was committed last."""
        self._phase.slot, self._phase.steady, self._phase.anew = self.memory.slot, self.memory.steady, False

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

    def _compared(
        self, now: Memory, logits: list[Tensor], mirrored: list[Tensor] | None, sharpness: Array | None
    ) -> Memory:
        return now.compared(self._log_p(logits), None if mirrored is None else self._log_p(mirrored), sharpness)

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
            "sums": torch.tensor([m.prior, *m.evidence], dtype=torch.float64),
            "answers": torch.from_numpy(m.answers.sums.copy()),
            "levels": torch.from_numpy(m.answers.counts.copy()),
            "domain": torch.from_numpy(m.domain.as_array()),
        }

    def fits(self, saved: Mapping[str, Any], classes: int | None) -> bool:
        """Whether such a choice may have remembered this."""
        if not saved:
            return True
        slots = len(SHARES)
        return (
            saved.keys() == {"counts", "sums", "answers", "levels", "domain"}
            and len(saved["counts"]) == 3 + 2 * slots
            and all(isinstance(n, int) and n >= 0 for n in saved["counts"])
            and saved["counts"][0] < slots
            and saved["sums"].shape == (1 + slots,)
            and len(saved["domain"]) == 3
            and fits(saved["answers"].shape, saved["levels"].shape, (slots, len(TEMPERATURES)), classes)
        )

    def recall(self, saved: Mapping[str, Any]) -> None:
        """Go on from what was remembered."""
        self.reset()
        if saved:
            slots = len(SHARES)
            slot, batches, due, *counts = saved["counts"]
            prior, *evidence = saved["sums"].tolist()
            self.memory = Memory(
                slot=slot,
                batches=batches,
                due=due,
                prior=prior,
                evidence=tuple(evidence),
                updates=tuple(counts[:slots]),
                last=tuple(counts[slots:]),
                domain=Domain.of(saved["domain"].float().cpu().numpy()),
                answers=MeanAnswers(*(saved[name].float().cpu().numpy() for name in ("answers", "levels"))),
            )
            self.settle()
