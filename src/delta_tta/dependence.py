"""Whether the batches of a stream are of one kind, as far as the source's labels tell.

A method that normalises with each batch's own statistics takes every batch for a fair sample of the stream. Where one
class follows another it is not, and such a method loses tens of points without anything running away. Its own labels do
not show it, as it makes every batch look diverse; the source's do: in a stream without order two
samples of one batch get the same label as often as two samples of different batches. With n_b samples in batch b, and
h_b of them in each class as the source labels them,

    coherence = Σ_b h_b · (h_b − 1) / Σ_b n_b (n_b − 1)  −  Σ_{a≠b} h_a · h_b / Σ_{a≠b} n_a n_b,

0 in a stream without order, up to 1 where each batch is of one class. A source that prefers one class does so in all
batches, and a stream that has more of one class has it in all batches: neither adds anything. Whether what is measured
is more than chance is told by its standard deviation over all ways to deal these samples into batches of these sizes,
which is known exactly (Mantel, 1967), for few classes and unequal batches, too.

A source that prefers one class here and another there, as it does where one corruption follows another, looks the same.
So batches are compared at the start of a stream alone. For order that comes later a batch is looked at now and then
by itself, as is the first one: does it show few classes, to the source or to moving averages that would start with it,
whichever are more certain (`pacer.py`)?

Ours, not the paper's.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from .pace import Look

SAMPLES, BATCHES = 512, 4
"""The first batches are compared: at least so many of them, with at least so many samples."""
EVERY = 512
"""Later, one batch in so many is looked at."""
SURE = 5.0
"""Standard deviations. A sum of squares has a long tail: with two classes about one stream in a hundred gets there
without order. It is given moving averages, which do not need any."""
FEW, SMALL = 0.4, 32
"""The pace below which a batch shows too few classes to be normalised by itself, chosen on validation corruptions; less
in batches smaller than this, which are less certain."""


def few_classes(seen: Look) -> bool:
    """Whether the batch shows few."""
    return seen.pace < FEW * min(1.0, seen.size / SMALL)


def complete(labels: Tensor) -> bool:
    """Whether the table of the first batches is."""
    return len(labels) >= BATCHES and int(labels.sum()) >= SAMPLES


def with_batch(labels: Tensor, counts: Tensor) -> Tensor:
    """Return the table, (batches, classes), with one more batch."""
    counts = counts.unsqueeze(0)
    return torch.cat([labels, counts]) if labels.shape[1:] == counts.shape[1:] else counts


def coherence(labels: Tensor) -> float:
    """Return how much more often two samples of one batch have one label than two of different batches."""
    table = labels.double()
    sizes, total = table.sum(1), table.sum(0)
    own = table.square().sum()
    pairs, others = sizes.square().sum() - sizes.sum(), sizes.sum() ** 2 - sizes.square().sum()
    if not pairs or not others:
        return 0.0
    return float((own - sizes.sum()) / pairs - (total.square().sum() - own) / others)


def surprise(labels: Tensor) -> float:
    """Return the coherence in its own standard deviations, as if the samples had been dealt into the batches at random.

    Counted are pairs of samples of one batch and one label. Of two pairs, one of a batch and one of a label, all four
    samples may differ, or three, or they are the same two: hence the three products of the second moment.
    """
    samples = int(labels.sum())
    if samples < 4:
        return 0.0
    pairs, chains, apart = zip(*map(_ordered, (labels.sum(1), labels.sum(0))), strict=True)
    two = samples * (samples - 1)
    three, four = two * (samples - 2), two * (samples - 2) * (samples - 3)
    mean = Fraction(math.prod(pairs), two)
    square = Fraction(2 * math.prod(pairs), two) + Fraction(4 * math.prod(chains), three)
    variance = square + Fraction(math.prod(apart), four) - mean**2
    found = int((labels * (labels - 1)).sum())
    return float((found - mean) / math.sqrt(variance)) if variance else 0.0


def _ordered(sizes: Tensor) -> tuple[int, int, int]:
    """Return the ordered pairs in groups so large, the chains of two such pairs, and those two that share no sample."""
    pairs = int((sizes * (sizes - 1)).sum())
    chains = int((sizes * (sizes - 1) * (sizes - 2)).sum())
    return pairs, chains, pairs**2 - 2 * pairs - 4 * chains
