"""TENT and DELTA written plainly, to be timed against."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def entropy(logits: Tensor) -> Tensor:
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)


class PlainTent:
    """Batch statistics by train-mode batch norms, entropy, one optimizer step (Wang et al. 2021)."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model.train().requires_grad_(False)
        parameters = []
        for m in model.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.requires_grad_(True)
                m.track_running_stats, m.running_mean, m.running_var = False, None, None
                parameters += [m.weight, m.bias]
        self.optimizer = torch.optim.Adam(parameters, 1e-3)

    def __call__(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        entropy(logits).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return logits


class FormulaNorm(nn.Module):
    """TBR as the paper prints it, left to autograd."""

    def __init__(self, layer: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = layer.weight, layer.bias, layer.eps
        self.mean: Tensor | None = None
        self.std: Tensor | None = None

    def forward(self, v: Tensor) -> Tensor:
        mean_b = v.mean((0, 2, 3), keepdim=True)
        std_b = (v.var((0, 2, 3), unbiased=False, keepdim=True) + self.eps).sqrt()
        if self.mean is None or self.std is None:
            self.mean, self.std = mean_b.detach(), std_b.detach()
        r = std_b.detach() / self.std
        d = (mean_b.detach() - self.mean) / self.std
        out = (v - mean_b) / std_b * r + d
        self.mean = 0.95 * self.mean + 0.05 * mean_b.detach()
        self.std = 0.95 * self.std + 0.05 * std_b.detach()
        return out * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)


class PlainDelta:
    """TENT with the formula's TBR and DOT."""

    def __init__(self, model: nn.Module, classes: int) -> None:
        self.model = model.eval().requires_grad_(False)
        for parent in list(model.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, nn.BatchNorm2d):
                    setattr(parent, name, FormulaNorm(child))
        parameters = [p for m in model.modules() if isinstance(m, FormulaNorm) for p in (m.weight, m.bias)]
        for p in parameters:
            p.requires_grad_(True)
        self.optimizer = torch.optim.Adam(parameters, 1e-3)
        self.z = torch.full((classes,), 1 / classes)

    def __call__(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        p = logits.detach().softmax(1)
        w = 1 / (self.z[p.argmax(1)] + 1e-8)
        (w * len(w) / w.sum() * entropy(logits)).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.z = 0.9 * self.z + 0.1 * p.mean(0)
        return logits
