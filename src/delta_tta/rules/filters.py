"""The filters of "+sticky" (`postprocess/sticky.py` has the formulas), over log-probabilities in numpy."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

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
from .answers import MeanAnswers

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


def filtered(
    log_p: Array, before: Beliefs, names: Sequence[Hashable] | None, smooth: bool, sharpness: Array | None = None
) -> tuple[Array, Beliefs]:
    """Return what is to be added to the log-probabilities, (B, K), and the beliefs after this batch.

    Args:
        log_p: (B, K), in the order of time.
        before: the beliefs before it, which stay as they are.
        names: of each sample, the stream it belongs to; None: all to one.
        smooth: whether the answer to a sample also uses those behind it in its batch.
        sharpness: of each sample, (B,); None where there is none to be had.
    """
    correction = np.zeros_like(log_p)
    rows = np.flatnonzero(np.isfinite(log_p.max(1))).tolist()  # what is not finite tells nothing
    if not len(rows):
        return correction, before
    names = [None] * len(log_p) if names is None else names
    p = tempered(log_p[rows])
    state, q, between = before.following(p, None if sharpness is None else sharpness[rows], smooth)
    ratio = likelihood(p, q)
    answers = p[0].copy()
    for name in (met := dict.fromkeys(names[row] for row in rows)):
        own = slice(None) if len(met) == 1 else [place for place, row in enumerate(rows) if names[row] == name]
        q_own = q if q.shape[1] == 1 else q[:, own]
        last = state.beliefs.pop(name, None)
        start = np.repeat(q_own[:, :1], len(STAYS), 1) if last is None else last
        belief, z = forward_filters(ratio[:, own], q_own, start)
        state.beliefs[name] = belief  # last in the order of their use
        evidence = accumulated(state.evidence, np.log(z))
        state.evidence = evidence[-1]
        weights = weights_of(evidence[-1:] if smooth else evidence)[:, 1:]  # (1 or b, T·S)
        weights[weights <= NEGLIGIBLE] = 0
        if weights.any():
            places = np.flatnonzero(weights.any(0))
            t, s = np.divmod(places, len(STAYS))
            q_answer = state.answers.at(between[own], p.shape[2]) if smooth else q_own
            told = likelihood(p[:, own], q_answer)[t]
            beliefs = filtered_beliefs(told, q_answer[t], start[t, s], STAYS[s, None], smooth)
            answers[own] = (1 - weights.sum(1, keepdims=True)) * p[0][own]
            answers[own] += np.einsum("bf,bfk->bk", np.broadcast_to(weights[:, places], beliefs.shape[:2]), beliefs)
    while len(state.beliefs) > STREAMS:
        del state.beliefs[next(iter(state.beliefs))]
    correction[rows] = np.log(np.maximum(answers, TINY)) - np.log(np.maximum(p[0], TINY))
    return correction, state


def names_of(stream: object, size: int) -> list[Hashable]:
    """Return the name of each sample's stream.

    Args:
        stream: one name for all samples, or a list with one for each.
        size: how many samples there are.
    """
    names = list(stream) if isinstance(stream, (list, tuple)) else [stream] * size
    if len(names) != size:
        raise InputError(f"Expected one `stream` for each of {size} samples, but got {len(names)}.")
    if not all(isinstance(name, (str, int)) for name in names):
        raise InputError("Expected each `stream` to be a text or an integer, so that a state can be saved.")
    return names


def stays(beliefs: Beliefs) -> float:
    """Return how likely the class is thought to stay, 0 to 1."""
    weights = weights_of(beliefs.evidence[None])[0, 1:]
    return float(weights.reshape(-1, len(STAYS)).sum(0) @ STAYS) if beliefs.answers.samples else 0.0


class Beliefs:
    """The mean answers by temperature; evidence of each filter, (T, S); belief by stream, (T, S, K)."""

    def __init__(
        self,
        answers: MeanAnswers | None = None,
        evidence: Array | None = None,
        beliefs: dict[Hashable, Array] | None = None,
    ) -> None:
        self.answers = MeanAnswers() if answers is None else answers
        self.evidence = np.zeros((len(TEMPERATURES), len(STAYS)), np.float32) if evidence is None else evidence
        self.beliefs = {} if beliefs is None else beliefs

    def following(self, p: Array, sharpness: Array | None, smooth: bool) -> tuple[Beliefs, Array, Array]:
        """Return a copy that has met these predictions, (T, B, K), q, and where the samples lie between the levels.

        If smooth, q knows the whole batch, else what has come so far.
        """
        after, found = self.answers, []
        for start in range(0, p.shape[1], step := p.shape[1] if smooth else 1):
            part = slice(start, start + step)
            keep = math.exp(-step / MEMORY_OF_ANSWERS)
            after, between = after.after(p[:, part], None if sharpness is None else sharpness[part], keep)
            found.append(after.at(between, PRIOR))
        q = found[0] if smooth else np.concatenate(found, 1)
        return Beliefs(after, self.evidence.copy(), dict(self.beliefs)), q, between


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


def accumulated(evidence: Array, news: Array) -> Array:
    """Return the evidence after each sample, (B, T, S): the old is forgotten over MEMORY samples."""
    keep, found = np.exp(-1 / MEMORY), np.empty_like(news)
    for t, new in enumerate(news):
        evidence = found[t] = keep * evidence + new
    return found


def weights_of(evidence: Array) -> Array:
    """Return the weights, (B, 1 + T·S), of no filter and of each filter; they sum to 1."""
    flat = evidence.reshape(len(evidence), -1)
    scores = np.concatenate([np.full((len(flat), 1), DOUBT, np.float32), flat], 1)
    weights: Array = np.exp(scores - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    return weights
