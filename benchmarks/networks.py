"""The networks that are timed, random weights: only their shapes matter here."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from delta_tta.models.cifar import CifarResNet, CifarResNeXt


class Block(nn.Module):
    """Residual block: two 3×3 convolutions, or 1×1, 3×3, 1×1 where `inner` is given."""

    def __init__(self, width_in: int, width_out: int, stride: int, inner: int = 0) -> None:
        super().__init__()
        if inner:
            plan = [(width_in, inner, 1, 1), (inner, inner, 3, stride), (inner, width_out, 1, 1)]
        else:
            plan = [(width_in, width_out, 3, stride), (width_out, width_out, 3, 1)]
        self.convs = nn.ModuleList(nn.Conv2d(i, o, k, s, k // 2, bias=False) for i, o, k, s in plan)
        self.norms = nn.ModuleList(nn.BatchNorm2d(o) for _, o, *_ in plan)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or width_in != width_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(width_in, width_out, 1, stride, bias=False), nn.BatchNorm2d(width_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            y = norm(conv(F.relu(y, inplace=True) if i else y))
        return F.relu(y + self.shortcut(x))


def residual_network(widths: list[int], depths: list[int], inner: list[int] | None = None) -> nn.Sequential:
    """Stack residual stages behind an ImageNet stem; the first keeps the size, the others halve it."""
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    layers: list[nn.Module] = [*stem]
    before = 64
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for i in range(depth):
            stride = 2 if stage and i == 0 else 1
            layers.append(Block(before, width, stride, inner[stage] if inner else 0))
            before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


def tiny() -> nn.Sequential:
    """Return a network so small that what surrounds it takes the time; images of 8×8, 10 classes."""
    layers: list[nn.Module] = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "CIFAR ResNet-20": (lambda: CifarResNet(20, 10), 32),
    "ResNet-18": (lambda: residual_network([64, 128, 256, 512], [2, 2, 2, 2]), 64),
    "ResNet-50": (lambda: residual_network([256, 512, 1024, 2048], [3, 4, 6, 3], [64, 128, 256, 512]), 96),
    "ResNeXt-29 4×32d": (lambda: CifarResNeXt(100), 16),
}
"""Name → how to build it, and the image size that fits two cores."""
