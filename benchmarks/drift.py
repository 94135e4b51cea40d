"""A small task whose data never rest: noisy patterns, classes in runs, seen through a sensor that keeps changing."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

CLASSES, PIXELS = 6, 8
STAY = 0.9
"""How likely the next sample is of the same class."""


class Drift:
    """The stream; the same seed gives the same samples in the same order."""

    def __init__(self, seed: int) -> None:
        self._draw = torch.Generator().manual_seed(seed)
        self._patterns = 0.3 * torch.randn(CLASSES, 3, PIXELS, PIXELS, generator=self._draw)
        self._label = 0

    def clean(self, size: int) -> tuple[Tensor, Tensor]:
        """Return images and labels as a network was trained on: every class alike, nothing drifts."""
        labels = torch.randint(CLASSES, (size,), generator=self._draw)
        return self._seen(labels, 0.5), labels

    def batch(self, i: int, size: int) -> tuple[Tensor, Tensor]:
        """Return the images and labels of batch i."""
        # which classes are frequent goes around in 20,000 batches; contrast, brightness and noise have other periods
        turn = [i / 20_000 + k / CLASSES for k in range(CLASSES)]
        favour = torch.tensor([math.exp(2 * math.sin(2 * math.pi * t)) for t in turn])
        others = torch.multinomial(favour, size, replacement=True, generator=self._draw).tolist()
        stays = (torch.rand(size, generator=self._draw) < STAY).tolist()
        labels = []
        for stay, other in zip(stays, others, strict=True):
            self._label = self._label if stay else other
            labels.append(self._label)
        contrast = 1 + 0.6 * math.sin(i / 900)
        brightness = torch.tensor([0.8 * math.sin(i / 1_500 + c) for c in range(3)]).view(3, 1, 1)
        noise = 1 + 0.5 * math.sin(i / 4_000)
        return self._seen(torch.tensor(labels), noise) * contrast + brightness, torch.tensor(labels)

    def _seen(self, labels: Tensor, noise: float) -> Tensor:
        images = self._patterns[labels]
        return images + noise * torch.randn(images.shape, generator=self._draw)


def trained(stream: Drift, steps: int = 150) -> nn.Sequential:
    """Return a tiny network that knows the clean patterns."""
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(PIXELS * PIXELS * 4, CLASSES),
    )
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(steps):
        images, labels = stream.clean(32)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
    return net.eval()
