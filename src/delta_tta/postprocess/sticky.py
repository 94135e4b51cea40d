"""Answers that know the stream: what was in view a moment ago probably still is.

A hidden Markov model over the samples in their order. The class stays with probability s, or else is drawn anew from q,
the mean of the predictions so far; p(y|x)/q(y) is the likelihood of a sample. With a the belief before a sample,

    A = Σ_y a(y) p(y)/q(y)          Z = 1 + s (A − 1)          a ← (s a p/q + (1 − s) p) / Z

and log Z is what the sample says in favour of s against s = 0, samples without order, under which Z is 1.

Nobody knows s, nor how far the model's confidence can be believed (p^(1/T), renormalised). So a filter runs for each
of a few values of both, and the answer is their mean, weighed by how well each has foretold the stream lately:
exp(Σ log Z), against exp(DOUBT) for leaving the answers as they are. On a shuffled stream
that remains, and nothing changes.

All samples of a batch are answered together, so each may use those behind it: `filter="smooth"` adds the
backward pass within the batch. `filter="causal"` uses only what came before.

Filtering a classifier's outputs by a hidden Markov model is old; relatives at test time are LAME (Boudiaf et al. 2022)
and UniTTA's COFA (Du et al. 2024). New here: s, T and whether to filter at all come from the likelihood of the stream.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from ..evidence import STAYS, TEMPERATURES, Array
from ..options import Options
from ..registry import component
from ..rules.answers import MeanAnswers, fits
from ..rules.filters import Beliefs, filtered, stays
from ..settings import Settings
from .base import Filter


@dataclass(frozen=True)
class StickyOptions(Options):
    """Settings of the filter.

    Attributes:
        filter: whether "+sticky" lets the answer to a sample depend on those behind it in its batch ("smooth"), or only
            on what came before ("causal").
    """

    filter: Literal["smooth", "causal"] = "smooth"


@component("sticky", "filter", "filter the answers over the stream: what was in view probably still is", part=True)
class Sticky(Filter):
    """The filter of one adapter. `answer` returns what to say and the state after it; only `commit` changes it."""

    Options = StickyOptions
    reads_sharpness = on_edge = True

    def __init__(self, settings: Settings) -> None:
        self.mode = settings.options(StickyOptions).filter
        self.reset()

    def reset(self) -> None:
        """Forget the streams."""
        self._state = Beliefs()

    @property
    def stays(self) -> float:
        """How likely the class is thought to stay, 0 to 1."""
        return stays(self._state)

    def answer(
        self, logits: Tensor, streams: Sequence[Hashable] | None = None, sharpness: Array | None = None
    ) -> tuple[Tensor, Beliefs]:
        """Return the filtered logits, (B, K), and the state after this batch.

        Args:
            logits: (B, K), in the order of time.
            streams: of each sample, the stream (camera, video) it belongs to; None: all to one.
            sharpness: of each sample, (B,); None where there is none to be had.
        """
        log_p = logits.detach().float().log_softmax(1).cpu().numpy()
        known = self._state.answers
        if known.samples and known.sums.shape[-1] != log_p.shape[1]:
            raise InputError(
                f"Expected logits over {known.sums.shape[-1]} classes as before, but got {log_p.shape[1]}. "
                "Call reset() before another task begins."
            )
        correction, after = filtered(log_p, self._state, streams, self.mode == "smooth", sharpness)
        return (logits + torch.from_numpy(correction).to(logits.device)).to(logits.dtype), after

    def commit(self, state: Beliefs) -> None:
        """Go on from what `answer` returned."""
        self._state = state

    def remembered(self) -> dict[str, Any]:
        """Return what must be saved: tensors, and the names of the streams as text or numbers."""
        state = self._state
        if not state.answers.samples:
            return {}
        names = list(state.beliefs)
        return {
            "answers": torch.from_numpy(state.answers.sums.copy()),
            "levels": torch.from_numpy(state.answers.counts.copy()),
            "evidence": torch.from_numpy(state.evidence.copy()),
            "streams": names,
            "beliefs": torch.from_numpy(np.stack([state.beliefs[name] for name in names])),
        }

    def fits(self, memory: Mapping[str, Any], classes: int | None) -> bool:
        """Whether a filter over so many classes may have remembered this; None: it answered, and nothing was learnt."""
        if not memory:
            return True
        classes = memory["answers"].shape[-1] if classes is None else classes
        grid = (len(TEMPERATURES), len(STAYS))
        return (
            memory.keys() == {"answers", "levels", "evidence", "streams", "beliefs"}
            and fits(memory["answers"].shape, memory["levels"].shape, grid[:1], classes)
            and memory["evidence"].shape == grid
            and memory["beliefs"].shape == (len(memory["streams"]), *grid, classes)
        )

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Go on from what was remembered."""
        self.reset()
        if memory:
            beliefs = memory["beliefs"].float().cpu().numpy()
            self._state = Beliefs(
                MeanAnswers(*(memory[name].float().cpu().numpy() for name in ("answers", "levels"))),
                memory["evidence"].float().cpu().numpy(),
                dict(zip(memory["streams"], beliefs, strict=True)),
            )
