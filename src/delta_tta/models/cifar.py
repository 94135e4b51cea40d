"""Residual networks for 32×32 images: ResNet (He 2016), ResNeXt-29 (Xie 2017), wide ResNet (Zagoruyko 2016)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import ModelError


class TwoConvolutions(nn.Module):
    """Base of the blocks with two 3×3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def residual(self, x: Tensor) -> Tensor:
        """Return F(x)."""
        y: Tensor = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return y


class BasicBlock(TwoConvolutions):
    """The shortcut is a 1×1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, stride)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(F(x) + shortcut(x))."""
        return F.relu(self.residual(x) + self.shortcut(x))


class CifarResNet(nn.Module):
    """Three stages of basic blocks with 16, 32 and 64 channels times `width`; the depth is 6n + 2."""

    def __init__(self, depth: int = 20, classes: int = 10, width: int = 1) -> None:
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise ModelError(f"Expected a depth of 6n + 2 (20, 32, 44, 56, ...), but got {depth}.")
        inputs = 16 * width
        self.conv1 = nn.Conv2d(3, inputs, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inputs)
        blocks = []
        for stage, planes in enumerate((16, 32, 64)):
            for i in range((depth - 2) // 6):
                blocks.append(BasicBlock(inputs, planes * width, stride=2 if stage and not i else 1))
                inputs = planes * width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, (B, classes), of images (B, 3, H, W)."""
        x = self.blocks(F.relu(self.bn1(self.conv1(x))))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


class ResNeXtBlock(nn.Module):
    """1×1, grouped 3×3, 1×1; module names are those of the public AugMix and RobustBench checkpoints."""

    def __init__(self, inputs: int, inner: int, outputs: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv_reduce = nn.Conv2d(inputs, inner, 1, bias=False)
        self.bn_reduce = nn.BatchNorm2d(inner)
        self.conv_conv = nn.Conv2d(inner, inner, 3, stride, 1, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(inner)
        self.conv_expand = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn_expand = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(F(x) + downsample(x))."""
        y = F.relu(self.bn_reduce(self.conv_reduce(x)))
        y = F.relu(self.bn(self.conv_conv(y)))
        return F.relu(self.bn_expand(self.conv_expand(y)) + self.downsample(x))


class CifarResNeXt(nn.Module):
    """ResNeXt-29 4×32d, the CIFAR network of AugMix (Hendrycks et al. 2020) and of the DELTA paper."""

    def __init__(self, classes: int = 10, depth: int = 29, groups: int = 4, base_width: int = 32) -> None:
        super().__init__()
        if depth < 11 or (depth - 2) % 9:
            raise ModelError(f"Expected a depth of 9n + 2 (20, 29, 38, ...), but got {depth}.")
        self.conv_1_3x3 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn_1 = nn.BatchNorm2d(64)
        stages: list[nn.Sequential] = []
        width = 64
        for planes in (64, 128, 256):
            inner, outputs = planes * base_width // 64 * groups, planes * 4
            blocks = []
            for i in range((depth - 2) // 9):
                blocks.append(ResNeXtBlock(width, inner, outputs, 2 if stages and not i else 1, groups))
                width = outputs
            stages.append(nn.Sequential(*blocks))
        self.stage_1, self.stage_2, self.stage_3 = stages
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, (B, classes), of images (B, 3, H, W)."""
        x = F.relu(self.bn_1(self.conv_1_3x3(x)))
        x = self.stage_3(self.stage_2(self.stage_1(x)))
        logits: Tensor = self.classifier(x.mean(dim=(2, 3)))
        return logits


class WideBlock(nn.Module):
    """Norm, ReLU, 3×3, twice, added to the input; module names are those of the public checkpoints."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        same = stride == 1 and inputs == outputs
        self.convShortcut = None if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return F(x) + x, or + a 1×1 convolution of the normed input where the shape changes."""
        y = F.relu(self.bn1(x))
        z: Tensor = self.conv2(F.relu(self.bn2(self.conv1(y))))
        return z + (x if self.convShortcut is None else self.convShortcut(y))


class WideStage(nn.Module):
    """Blocks of one width, under the name the public checkpoints give them."""

    def __init__(self, blocks: list[WideBlock]) -> None:
        super().__init__()
        self.layer = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        """Run the blocks."""
        y: Tensor = self.layer(x)
        return y


class WideResNet(nn.Module):
    """Three stages of 16, 32 and 64 channels times `width`; the depth is 6n + 4."""

    def __init__(self, depth: int = 28, width: int = 2, classes: int = 10) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise ModelError(f"Expected a depth of 6n + 4 (16, 28, 40, ...), but got {depth}.")
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        stages, inputs = [], 16
        for stage, planes in enumerate((16, 32, 64)):
            blocks = []
            for i in range((depth - 4) // 6):
                blocks.append(WideBlock(inputs, planes * width, stride=2 if stage and not i else 1))
                inputs = planes * width
            stages.append(WideStage(blocks))
        self.block1, self.block2, self.block3 = stages
        self.bn1 = nn.BatchNorm2d(inputs)
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, (B, classes), of images (B, 3, H, W)."""
        x = self.block3(self.block2(self.block1(self.conv1(x))))
        logits: Tensor = self.fc(F.relu(self.bn1(x)).mean(dim=(2, 3)))
        return logits
