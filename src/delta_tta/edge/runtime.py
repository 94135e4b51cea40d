"""Adapts a model that runs in onnxruntime, as `delta_tta.adapt` does in torch, with numpy alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, StateError
from ..evidence import Array
from ..rules import TRUSTED_SAMPLES
from ..rules.domain import sharpness_of_batch, sharpness_of_samples
from ..rules.filters import Beliefs, filtered, names_of, stays
from ..rules.shares import OWN, SHARES, Memory
from ..signals import Reason, Skip
from .averages import mixture, moved
from .guard import EdgeGuard
from .images import differences, log_softmax, mirror_images, not_finite
from .mirror import Agreement, averaged
from .network import Images, Network, Run, Statistics
from .state import State, load, save


class EdgeModel:
    """A classifier that adapts while it predicts, in numpy and onnxruntime.

    Attributes:
        skipped: why the last batch was not learnt from; None if it was.
    """

    def __init__(self, path: str | Path, *, threads: int | None = None, providers: list[str] | None = None) -> None:
        """Load a model.

        Args:
            path: a file written by `delta_tta.edge.export`.
            threads: of onnxruntime; None lets it choose.
            providers: of onnxruntime; None takes the CPU.
        """
        self.network = Network(path, threads, providers)
        about = self.network.about
        self.method: str = about["method"]
        self._alpha: float = about["alpha"]
        self._guarded = about["guard"] is not None
        self._guard = EdgeGuard(self.network) if self._guarded and self.network.adapts else None
        self.reset()

    def reset(self) -> None:
        """Forget everything learnt: the source model again, bit for bit."""
        self._state = State()
        self.skipped: Skip | None = None

    @property
    def share(self) -> float:
        """The share of the stream's statistics in use, 0 to 1."""
        return SHARES[self._state.shares.slot]

    @property
    def stays(self) -> float:
        """How likely the class is thought to stay, 0 to 1."""
        return stays(self._state.beliefs)

    @property
    def step(self) -> int:
        """Batches answered since the last reset."""
        return self._state.step

    @property
    def refused(self) -> int:
        """Batches answered since then, but not learnt from, because something is wrong with them."""
        return self._state.refused

    def save(self, path: str | Path) -> None:
        """Write what was learnt to an .npz file."""
        save(self._state, self.network.about["model"], path)

    def load(self, path: str | Path) -> None:
        """Go on from what was saved."""
        state = load(self.network.about["model"], path)
        width = (OWN - 1, len(self.network.source[0]))
        if state.averages is not None and any(one.shape != width for one in state.averages):
            raise StateError(f"Expected statistics of shape {width}, but the state holds others; it is damaged.")
        self._state, self.skipped = state, None

    def __call__(self, images: Any, stream: Hashable | Sequence[Hashable] = None) -> Array:
        """Return the logits (B, K) of a batch, and learn from it.

        Args:
            images: the batch, in the order of time, as the model takes it.
            stream: which camera or video the batch comes from, or, as a list, each of its samples; for "+sticky".
        """
        before = self._state
        x, wrong = self._checked(images)
        names = None if stream is None else names_of(stream, len(x))
        skipped: Skip | None
        if wrong is not None:
            logits, after, skipped = self._predicted(x, before), before, wrong
        elif self.network.about["collects"] and len(x) < TRUSTED_SAMPLES:
            logits, after, skipped = self._collected(x, before)
        else:
            logits, after, skipped = self._observed(x, before)
        answers, beliefs = self._filtered(x, logits, names, before)
        bad = skipped is not None and skipped.reason is not Reason.COLLECTING
        refused = before.refused + (bad and after.refused == before.refused)
        self._state = replace(
            after, beliefs=before.beliefs if bad else beliefs, step=before.step + 1, refused=int(refused)
        )
        self.skipped = skipped
        return answers

    def predict(self, images: Any, stream: Hashable | Sequence[Hashable] = None) -> Array:
        """Return the logits of a batch with what was learnt so far, and learn nothing."""
        x, _ = self._checked(images)
        names = None if stream is None else names_of(stream, len(x))
        return self._filtered(x, self._predicted(x, self._state), names, self._state)[0]

    def _checked(self, images: Any) -> tuple[Images, Skip | None]:
        x = self.network.check(images)
        bad = not_finite(x)
        if not bad:
            return x, None
        if not self._guarded:
            raise InputError(f"Expected finite values, but samples {bad} of the batch hold NaN or infinity.")
        return np.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0), Skip(Reason.NOT_FINITE, f"input, samples {bad}")

    def _filtered(self, x: Images, logits: Array, names: list[Hashable] | None, state: State) -> tuple[Array, Beliefs]:
        mode = self.network.about["filter"]
        if mode is None:
            return logits, state.beliefs
        found = differences(x)
        sharpness = None if found is None else sharpness_of_samples(found)
        correction, beliefs = filtered(log_softmax(logits), state.beliefs, names, mode == "smooth", sharpness)
        return logits + correction, beliefs

    def _predicted(self, x: Images, state: State) -> Array:
        slot = state.shares.steady
        run = self._runner(slot, state.averages if slot else None, known=True)
        return self._answered(x, run(x), state.agreement, run)[0]

    def _collected(self, x: Images, before: State) -> tuple[Array, State, Skip | None]:
        """Answer at once, and learn when there are enough samples."""
        length = self.network.about["length"]
        logits = self._predicted(x, before)
        kept = x.copy() if before.kept is None else np.concatenate([before.kept, x])
        skipped: Skip | None = Skip(Reason.COLLECTING, f"{len(kept)} of {length}")
        full, after = len(kept) // length * length, before
        for start in range(0, full, length):
            _, after, skipped = self._observed(kept[start : start + length], after)
            if skipped is not None:
                after = replace(after, refused=after.refused + 1)
        return logits, replace(after, kept=kept[full:] if full < len(kept) else None), skipped

    def _observed(self, x: Images, before: State) -> tuple[Array, State, Skip | None]:
        """Answer; return the state after the batch, or the one before and why nothing was learnt."""
        network = self.network
        if not network.adapts:
            logits = network.run(x).logits
            answer, agreement = self._answered(x, logits, before.agreement, lambda images: network.run(images).logits)
            if not np.isfinite(np.exp(log_softmax(logits))).all():
                return answer, before, Skip(Reason.NOT_FINITE, "prediction")
            return answer, replace(before, agreement=agreement), None
        found = differences(x)
        now, anew = before.shares.with_sharpness(None if found is None else sharpness_of_batch(found))
        averages = None if anew else before.averages
        runs: dict[int, Run] = {}
        if now.compares:
            runs = {slot: self._run(x, slot, averages, 0 if slot else None) for slot in range(len(SHARES))}
            each = None if found is None else sharpness_of_samples(found)
            now, met = self._compared(x, now, averages, runs, each), list(runs)
        else:
            first = len(x) // 2 if now.measures_half(len(x)) else 0
            runs[now.slot] = self._run(x, now.slot, averages, first if now.slot else None)
            met = [now.slot]
        measured = {slot: network.measured(run) for slot, run in runs.items() if slot}
        logits = runs[now.slot].logits
        answer, agreement = self._answered(x, logits, before.agreement, self._runner(now.slot, averages))
        wrong = self._wrong(x, logits, measured)
        if wrong is not None:
            return answer, before, wrong
        learnt = moved(averages, measured, now.rates(len(x), self._alpha))
        return answer, replace(before, shares=now.after(met), averages=learnt, agreement=agreement), None

    def _compared(
        self, x: Images, now: Memory, averages: Statistics | None, runs: dict[int, Run], sharpness: Array | None
    ) -> Memory:
        mirrored = mirror_images(x)
        others = None
        if mirrored is not None:
            others = [log_softmax(self._runner(slot, averages)(mirrored)) for slot in runs]
        return now.compared([log_softmax(run.logits) for run in runs.values()], others, sharpness)

    def _runner(self, slot: int, averages: Statistics | None, known: bool = False) -> Callable[[Images], Array]:
        """Return what answers images with a slot; where it has no averages yet, or needs none, with the images' own.

        Args:
            slot: the slot.
            averages: of all slots but the first.
            known: whether to answer with the source's instead there.
        """
        own = slot > 0 and (averages is None or slot == OWN) and not known
        return lambda images: self._run(images, slot, averages, 0 if own else None).logits

    def _run(self, x: Images, slot: int, averages: Statistics | None, first: int | None) -> Run:
        """Run the graph with the mixture of a slot, and measure the samples from `first` on."""
        source = self.network.source
        if slot == 0:
            return self.network.run(x, first=first)
        if averages is None or (slot == OWN and first is not None):
            share = np.float32(SHARES[slot])
            return self.network.run(x, ((1 - share) * source[0], (1 - share) * source[1]), float(share), first)
        return self.network.run(x, mixture(source, averages, slot), first=first)

    def _answered(
        self, x: Images, logits: Array, before: Agreement | None, run: Callable[[Images], Array]
    ) -> tuple[Array, Agreement | None]:
        """Correct the answers, and let the source answer where they are not finite."""
        if self._guarded:
            fine = np.isfinite(logits.max(1, keepdims=True))
            if not fine.all():
                logits = np.where(fine, logits, self.network.run(x).logits)
        return averaged(x, logits, before, run) if self.network.about["mirror"] else (logits, before)

    def _wrong(self, x: Images, logits: Array, measured: dict[int, Statistics]) -> Skip | None:
        """Return why nothing is to be learnt from a batch, if so."""
        if not np.isfinite(np.exp(log_softmax(logits))).all():
            return Skip(Reason.NOT_FINITE, "prediction")
        if not all(np.isfinite(one).all() for pair in measured.values() for one in pair):
            return Skip(Reason.NOT_FINITE, "statistics")
        if self._guard is None or not measured:
            return None
        return self._guard.refuses(x, next(iter(measured.values())))
