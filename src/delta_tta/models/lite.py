"""EfficientNet-Lite0 (Tan and Le 2019; Google 2020) for 32×32 images: its stages but the last, with smaller strides."""

from __future__ import annotations

from torch import Tensor, nn

STAGES = (
    # expansion, channels, blocks, stride, kernel
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 1, 5),
)
"""As published but for one stride: the last of these, like the stem, halves the side of 224×224 images."""


class InvertedResidual(nn.Module):
    """1×1 to more channels, one filter a channel, 1×1 to fewer; added to the input where the shape stays."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int, kernel: int) -> None:
        super().__init__()
        inner = inputs * expansion
        wide = [*_norm(nn.Conv2d(inputs, inner, 1, bias=False)), nn.ReLU6()] if expansion > 1 else []
        deep = nn.Conv2d(inner, inner, kernel, stride, kernel // 2, groups=inner, bias=False)
        self.layers = nn.Sequential(*wide, *_norm(deep), nn.ReLU6(), *_norm(nn.Conv2d(inner, outputs, 1, bias=False)))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return F(x), + x where the shape stays."""
        y: Tensor = self.layers(x)
        return x + y if self.residual else y


class CifarLite(nn.Module):
    """A stem, fifteen blocks, the mean over space and a linear layer: 2.4 million parameters with 100 classes."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        inputs = 32
        self.stem = nn.Sequential(*_norm(nn.Conv2d(3, inputs, 3, 1, 1, bias=False)), nn.ReLU6())
        blocks = []
        for expansion, outputs, count, stride, kernel in STAGES:
            for i in range(count):
                blocks.append(InvertedResidual(inputs, outputs, expansion, 1 if i else stride, kernel))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, (B, classes), of images (B, 3, H, W)."""
        logits: Tensor = self.fc(self.blocks(self.stem(x)).mean(dim=(2, 3)))
        return logits


def _norm(convolution: nn.Conv2d) -> list[nn.Module]:
    return [convolution, nn.BatchNorm2d(convolution.out_channels, eps=1e-3)]
