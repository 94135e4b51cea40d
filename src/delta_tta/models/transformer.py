"""Compact convolutional transformer (Hassani et al. 2021) for 32×32 images; its norm layers are all LayerNorm."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError

SIDE = 32
"""Of the images: there is one learnt position for each of the 8×8 tokens."""


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of (B, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x normalised at each place."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class EncoderLayer(nn.Module):
    """Attention and a two-layer network, each after a LayerNorm and added to its input."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, inner)
        self.fc2 = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the tokens, (B, N, C), each informed by the others."""
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (B, heads, N, d)
        attention = (q @ k.transpose(2, 3) / q.shape[3] ** 0.5).softmax(3)  # (B, heads, N, N)
        x = x + self.proj((attention @ v).transpose(1, 2).flatten(2))
        y: Tensor = self.fc2(F.gelu(self.fc1(self.norm2(x))))
        return x + y


class CompactTransformer(nn.Module):
    """Convolutions to 8×8 tokens, encoder layers, and a mean of the tokens with learnt weights."""

    def __init__(self, classes: int = 10, width: int = 128, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width // 4, 3, padding=1, bias=False),
            ChannelNorm(width // 4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width // 4, width // 2, 3, padding=1, bias=False),
            ChannelNorm(width // 2),
            nn.ReLU(),
            nn.Conv2d(width // 2, width // 2, 3, padding=1, bias=False),
            ChannelNorm(width // 2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width // 2, width, 3, padding=1, bias=False),
        )
        self.position = nn.Parameter(0.02 * torch.randn(1, 64, width))
        self.layers = nn.Sequential(*(EncoderLayer(width, heads, 2 * width) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.pool = nn.Linear(width, 1)
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, (B, classes), of images (B, 3, 32, 32)."""
        if x.shape[1:] != (3, SIDE, SIDE):
            raise InputError(f"Expected images (B, 3, {SIDE}, {SIDE}), but got {tuple(x.shape)}; resize them.")
        tokens = self.stem(x).flatten(2).transpose(1, 2) + self.position  # (B, 64, C)
        tokens = self.norm(self.layers(tokens))
        weights = self.pool(tokens).softmax(1)  # (B, 64, 1)
        logits: Tensor = self.fc((weights * tokens).sum(1))
        return logits
