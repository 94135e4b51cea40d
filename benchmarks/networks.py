"""The networks that are timed, random weights: only their shapes matter here."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Residual block: two 3×3 convolutions, or 1×1, 3×3 (in groups), 1×1 where `inner` is given."""

    def __init__(self, width_in: int, width_out: int, stride: int, inner: int = 0, groups: int = 1) -> None:
        super().__init__()
        if inner:
            plan = [(width_in, inner, 1, 1, 1), (inner, inner, 3, stride, groups), (inner, width_out, 1, 1, 1)]
        else:
            plan = [(width_in, width_out, 3, stride, 1), (width_out, width_out, 3, 1, 1)]
        self.convs = nn.ModuleList(nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False) for i, o, k, s, g in plan)
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


def residual_network(
    widths: list[int],
    depths: list[int],
    classes: int,
    stem: int,
    small_images: bool,
    inner: list[int] | None = None,
    groups: int = 1,
) -> nn.Sequential:
    """Stack residual stages; the first keeps the size, the others halve it."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, stem, 3, 1, 1, bias=False) if small_images else nn.Conv2d(3, stem, 7, 2, 3, bias=False),
        nn.BatchNorm2d(stem),
        nn.ReLU(inplace=True),
        *([] if small_images else [nn.MaxPool2d(3, 2, 1)]),
    ]
    before = stem
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for i in range(depth):
            stride = 2 if stage and i == 0 else 1
            layers.append(Block(before, width, stride, inner[stage] if inner else 0, groups))
            before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


NETWORKS: dict[str, tuple[Callable[[], nn.Sequential], int]] = {
    "CIFAR ResNet-20": (lambda: residual_network([16, 32, 64], [3, 3, 3], 10, 16, True), 32),
    "ResNet-18": (lambda: residual_network([64, 128, 256, 512], [2, 2, 2, 2], 1000, 64, False), 64),
    "ResNet-50": (
        lambda: residual_network([256, 512, 1024, 2048], [3, 4, 6, 3], 1000, 64, False, [64, 128, 256, 512]),
        96,
    ),
    "ResNeXt-29 4×32d": (
        lambda: residual_network([256, 512, 1024], [3, 3, 3], 100, 64, True, [128, 256, 512], groups=4),
        16,
    ),
}
"""Name → how to build it, and the image size that fits two cores."""
