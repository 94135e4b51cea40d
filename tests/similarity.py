"""ETA's similarity filter (Niu et al. 2022), written out sample by sample."""

import math

import numpy as np
import torch


def logits_like_a_model(seed, size=16, classes=4, sharp=4.0):
    return torch.randn(size, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * sharp


def entropy(p):
    return -sum(float(v) * math.log(float(v)) for v in p if v > 0)


def cosine(a, b):
    return float(np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))


def plain_eta(stream, margin, threshold=0.4):
    """Which samples pass, and with what weight, written sample by sample."""
    average, passed, weights = None, [], []
    for logits in stream:
        p = logits.softmax(1).numpy()
        bound = threshold * math.log(p.shape[1])
        kept = [i for i in range(len(p)) if entropy(p[i]) < bound]
        if average is not None:
            kept = [i for i in kept if abs(cosine(average, p[i])) < margin]
        if kept:
            mean = p[kept].mean(0)
            average = mean if average is None else 0.9 * average + 0.1 * mean
        passed.append([i in kept for i in range(len(p))])
        weights.append([math.exp(bound - entropy(row)) for row in p])
    return passed, weights, average
