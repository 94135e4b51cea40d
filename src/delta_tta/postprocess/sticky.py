"""Answers that know the stream: what was in view a moment ago probably still is.

A hidden Markov model over the samples in their order. The class stays with probability s, or else is drawn anew from q,
the mean of the predictions so far; p(y|x)/q(y) is the likelihood of a sample. With a the belief before a sample,

    A = Σ_y a(y) p(y)/q(y)          Z = 1 + s (A − 1)          a ← (s a p/q + (1 − s) p) / Z

and log Z is what the sample says in favour of s against s = 0, samples without order, under which Z is 1.

Nobody knows s, nor how far the model's confidence can be believed (p^(1/T), renormalised). So a filter runs for each
of a few values of both, and the answer is their mean, weighed by how well each has foretold the stream lately:
exp(Σ log Z), against exp(DOUBT) for leaving the answers as they are. On a shuffled stream
that remains, and nothing changes.

All samples of a batch are answered together, so each may learn from those behind it, too: `filter="smooth"` adds the
backward pass within the batch. `filter="causal"` uses only what came before.

Filtering a classifier's outputs by a hidden Markov model is old; relatives at test time are LAME (Boudiaf et al. 2022)
and UniTTA's COFA (Du et al. 2024). Ours: s, T and whether to filter at all come from the likelihood of the stream.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from ..evidence import (
    MEMORY,
    MEMORY_OF_ANSWERS,
    STAYS,
    TEMPERATURES,
    TINY,
    Array,
    forward_filters,
    likelihood,
    tempered,
)
from ..registry import Capabilities, component

DOUBT = 10.0
"""Nats that the stream must say for s > 0 before answers change: below it chance is at work on weak networks."""
PRIOR = 8.0
"""In the evidence q starts as if so many samples had been spread evenly over the classes. While q lags behind, a model
that fails and always says the same looks sticky: with 30, single images lost up to 5.5 points. Smooth answers take a q
that starts with one sample a class: where 8 samples are spread over 1,000 classes, whatever was not in view yet looks
far too likely: the first 256 samples of a stream lost 4 points, now they gain 3 (`benchmarks/sticky.py`)."""
STREAMS = 256
"""Streams that are told apart; those that were not seen for longest are forgotten first."""
NEGLIGIBLE = 1e-4


@component("sticky", "filter", "filter the answers over the stream: what was in view probably still is", part=True)
class Sticky(Capabilities):
    """The filter of one adapter. `answer` returns what to say and the state after it; only `commit` changes it."""

    uses = ("filter",)

    def __init__(self, mode: Literal["smooth", "causal"] = "smooth") -> None:
        self.mode = mode
        self.reset()

    def reset(self) -> None:
        """Forget the streams."""
        self._state = _State()

    @property
    def stays(self) -> float:
        """How likely the class is thought to stay, 0 to 1."""
        weights = _weights(self._state.evidence[None])[0, 1:]
        return float(weights.reshape(-1, len(STAYS)).sum(0) @ STAYS) if self._state.count else 0.0

    def answer(self, logits: Tensor, streams: Sequence[Hashable] | None = None) -> tuple[Tensor, _State]:
        """Return the filtered logits, (B, K), and the state after this batch.

        Args:
            logits: (B, K), in the order of time.
            streams: of each sample, the stream (camera, video) it belongs to; None: all to one.
        """
        log_p = logits.detach().float().log_softmax(1).cpu().numpy()
        rows = np.flatnonzero(np.isfinite(log_p.max(1))).tolist()  # what is not finite tells nothing
        if not len(rows):
            return logits, self._state
        names: Sequence[Hashable] = [None] * len(log_p) if streams is None else streams
        if self._state.count and self._state.mean.shape[1] != log_p.shape[1]:
            raise InputError(
                f"Expected logits over {self._state.mean.shape[1]} classes as before, but got {log_p.shape[1]}. "
                "Call reset() before another task begins."
            )
        p = tempered(log_p[rows])
        smooth = self.mode == "smooth"
        state, means, counts = self._state.following(p, not smooth)
        q = _with_prior(means, counts, PRIOR)  # (T, 1 or B, K)
        q_smooth = _with_prior(means, counts, p.shape[2]) if smooth else q
        ratio = likelihood(p, q)
        filtered = p[0].copy()
        for name in dict.fromkeys(names[row] for row in rows):
            own = [place for place, row in enumerate(rows) if names[row] == name]
            q_own, q_answer = (q, q_smooth) if smooth else (q[:, own], q[:, own])
            before = state.beliefs.pop(name, None)
            start = np.repeat(q_own[:, :1], len(STAYS), 1) if before is None else before
            belief, z = forward_filters(ratio[:, own], q_own, start)
            state.beliefs[name] = belief  # last in the order of their use
            evidence = _accumulated(state.evidence, np.log(z))
            state.evidence = evidence[-1]
            weights = _weights(evidence[-1:] if smooth else evidence)[:, 1:]  # (1 or b, T·S)
            weights[weights <= NEGLIGIBLE] = 0
            if weights.any():
                places = np.flatnonzero(weights.any(0))
                t, s = np.divmod(places, len(STAYS))
                met = likelihood(p[:, own], q_answer)[t]
                beliefs = filtered_beliefs(met, q_answer[t], start[t, s], STAYS[s, None], smooth)
                filtered[own] = (1 - weights.sum(1, keepdims=True)) * p[0][own]
                filtered[own] += np.einsum(
                    "bf,bfk->bk", np.broadcast_to(weights[:, places], beliefs.shape[:2]), beliefs
                )
        while len(state.beliefs) > STREAMS:
            del state.beliefs[next(iter(state.beliefs))]
        correction = np.zeros_like(log_p)
        correction[rows] = np.log(np.maximum(filtered, TINY)) - np.log(np.maximum(p[0], TINY))
        return (logits + torch.from_numpy(correction).to(logits.device)).to(logits.dtype), state

    def commit(self, state: _State) -> None:
        """Go on from what `answer` returned."""
        self._state = state

    def remembered(self) -> dict[str, Any]:
        """Return what must be saved: tensors, and the names of the streams as text or numbers."""
        state = self._state
        if not state.count:
            return {}
        names = list(state.beliefs)
        return {
            "mean": torch.from_numpy(state.mean.copy()),
            "count": state.count,
            "evidence": torch.from_numpy(state.evidence.copy()),
            "streams": names,
            "beliefs": torch.from_numpy(np.stack([state.beliefs[name] for name in names])),
        }

    def fits(self, memory: Mapping[str, Any], classes: int | None) -> bool:
        """Whether a filter over so many classes may have remembered this; None: it answered, and nothing was learnt."""
        if not memory:
            return True
        classes = memory["mean"].shape[-1] if classes is None else classes
        grid = (len(TEMPERATURES), len(STAYS))
        return (
            memory.keys() == {"mean", "count", "evidence", "streams", "beliefs"}
            and memory["mean"].shape == (grid[0], classes)
            and memory["evidence"].shape == grid
            and memory["beliefs"].shape == (len(memory["streams"]), *grid, classes)
        )

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Go on from what was remembered."""
        self.reset()
        if memory:
            beliefs = memory["beliefs"].float().cpu().numpy()
            self._state = _State(
                memory["mean"].float().cpu().numpy(),
                float(memory["count"]),
                memory["evidence"].float().cpu().numpy(),
                dict(zip(memory["streams"], beliefs, strict=True)),
            )


class _State:
    """The filters: the mean answer by temperature, (T, K); evidence for each, (T, S); belief by stream, (T, S, K)."""

    def __init__(
        self,
        mean: Array | None = None,
        count: float = 0.0,
        evidence: Array | None = None,
        beliefs: dict[Hashable, Array] | None = None,
    ) -> None:
        self.mean = np.empty((0, 0), np.float32) if mean is None else mean
        self.count = count
        self.evidence = np.zeros((len(TEMPERATURES), len(STAYS)), np.float32) if evidence is None else evidence
        self.beliefs = {} if beliefs is None else beliefs

    def following(self, p: Array, each: bool) -> tuple[_State, Array, Array]:
        """Return a copy that has met these predictions, (T, B, K), and its means and counts: after each, or at last."""
        temperatures, size, classes = p.shape
        count, mean = self.count, self.mean if self.count else np.zeros((temperatures, classes), np.float32)
        parts = [p[:, t : t + 1] for t in range(size)] if each else [p]
        means, counts = np.empty((temperatures, len(parts), classes), np.float32), np.empty(len(parts), np.float32)
        for place, part in enumerate(parts):
            count = min(count + part.shape[1], float(MEMORY_OF_ANSWERS))
            share = np.float32(min(1.0, part.shape[1] / count))
            mean = means[:, place] = (1 - share) * mean + share * part.mean(1)
            counts[place] = count
        return _State(mean, count, self.evidence.copy(), dict(self.beliefs)), means, counts


def _with_prior(means: Array, counts: Array, prior: float) -> Array:
    """Return the means, (T, n, K), as if `prior` samples, spread evenly over the classes, had been met before."""
    counts = counts[:, None]
    q: Array = (counts * means + np.float32(prior / means.shape[2])) / (counts + np.float32(prior))
    return q


def filtered_beliefs(ratio: Array, q: Array, start: Array, stay: Array, smooth: bool) -> Array:
    """Return what each filter believes at each sample, (B, F, K); smooth: with what the later ones say.

    Args:
        ratio: (F, B, K).
        q: for all samples or for each, (F, 1 or B, K).
        start: the beliefs before the first, (F, K).
        stay: s, (F, 1).
        smooth: whether to go back from the last.
    """
    beliefs = np.empty((ratio.shape[1], *start.shape), np.float32)
    belief = start
    for t in range(len(beliefs)):
        belief = (stay * belief + (1 - stay) * q[:, min(t, q.shape[1] - 1)]) * ratio[:, t]
        belief /= belief.sum(1, keepdims=True)
        beliefs[t] = belief
    if smooth:
        later = np.ones_like(start)
        for t in range(len(beliefs) - 1, 0, -1):
            told = ratio[:, t] * later
            later = stay * told + (1 - stay) * (q[:, min(t, q.shape[1] - 1)] * told).sum(1, keepdims=True)
            later /= later.mean(1, keepdims=True)
            both = beliefs[t - 1] * later
            beliefs[t - 1] = both / both.sum(1, keepdims=True)
    return beliefs


def _accumulated(evidence: Array, news: Array) -> Array:
    """Return the evidence after each sample, (B, T, S): the old is forgotten over MEMORY samples."""
    keep, found = np.exp(-1 / MEMORY), np.empty_like(news)
    for t, new in enumerate(news):
        evidence = found[t] = keep * evidence + new
    return found


def _weights(evidence: Array) -> Array:
    """Return the weights, (B, 1 + T·S), of no filter and of each filter; they sum to 1."""
    flat = evidence.reshape(len(evidence), -1)
    scores = np.concatenate([np.full((len(flat), 1), DOUBT, np.float32), flat], 1)
    weights: Array = np.exp(scores - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    return weights
