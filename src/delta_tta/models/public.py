"""CIFAR networks of two public collections of weights, under the names their checkpoints have.

`PlainResNet` is that of akamaster/pytorch_resnet_cifar10: He et al. 2016 with shortcuts that have no weights (their
option A). `GroupResNet` is that of zhangmarvin/memo: pre-activation (He et al. 2016b), with GroupNorm.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import ModelError
from ..normalization import Normalisation
from .cifar import TwoConvolutions

IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "ImageNet's statistics")
HALF = Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), "one half")
GROUPS = 8


class PlainBlock(TwoConvolutions):
    """Where the shape changes the shortcut takes every second pixel and pads channels."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, stride)
        self.stride, self.more = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(F(x) + shortcut(x))."""
        y = self.residual(x)
        if self.more:
            half = self.more // 2
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, self.more - half))
        return F.relu(y + x)


class GroupBlock(nn.Module):
    """Norm, relu, convolution, twice, added to the input; where the shape changes that is pooled and padded behind."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.GroupNorm(GROUPS, inputs)  # the checkpoints call their group norms so
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn2 = nn.GroupNorm(GROUPS, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.stride, self.more = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        """Return F(x) + shortcut(x)."""
        y: Tensor = self.conv2(F.relu(self.bn2(self.conv1(F.relu(self.bn1(x))))))
        if self.more:
            x = F.pad(F.avg_pool2d(x, self.stride), (0, 0, 0, 0, 0, self.more))
        return y + x


class PlainResNet(nn.Module):
    """Three stages of 16, 32 and 64 channels; the depth is 6n + 2."""

    def __init__(self, depth: int = 32, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1, self.layer2, self.layer3 = _stages(depth, PlainBlock)
        self.linear = nn.Linear(64, classes)
        self.normalisation = IMAGENET

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, (B, classes), of images (B, 3, H, W)."""
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


class GroupResNet(nn.Module):
    """Three stages of 16, 32 and 64 channels with GroupNorm; the depth is 6n + 2."""

    def __init__(self, depth: int = 26, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.layer1, self.layer2, self.layer3 = _stages(depth, GroupBlock)
        self.bn = nn.GroupNorm(GROUPS, 64)
        self.fc = nn.Linear(64, classes)
        self.normalisation = HALF

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, (B, classes), of images (B, 3, H, W)."""
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        logits: Tensor = self.fc(F.relu(self.bn(x)).mean(dim=(2, 3)))
        return logits


def _stages(depth: int, block: type[PlainBlock] | type[GroupBlock]) -> list[nn.Sequential]:
    if depth < 8 or (depth - 2) % 6:
        raise ModelError(f"Expected a depth of 6n + 2 (20, 26, 32, ...), but got {depth}.")
    stages, width = [], 16
    for stage, outputs in enumerate((16, 32, 64)):
        blocks: list[nn.Module] = []
        for i in range((depth - 2) // 6):
            blocks.append(block(width, outputs, 2 if stage and not i else 1))
            width = outputs
        stages.append(nn.Sequential(*blocks))
    return stages
