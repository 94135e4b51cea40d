"""Rivals of DELTA written plainly from the formulas of their papers, to be timed against.

Tensor operations of torch, autograd and torch's optimizers; Python loops only over the samples of a memory. Each takes
a network of its own and has the hyper-parameters of the papers. Augmentations and random orders are given from outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from baselines import entropy

Views = Callable[[Tensor], Tensor]
"""Returns augmented copies of images, as the network takes them."""
Orders = Callable[[], Generator]
"""Returns the random numbers of the next batch."""


def with_batch_statistics(net: nn.Module) -> list[nn.BatchNorm2d]:
    """Let the norm layers normalise each batch by itself; return them."""
    net.train().requires_grad_(False)
    layers = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    for layer in layers:
        layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
    return layers


def affine(layers: Sequence[nn.Module]) -> list[nn.Parameter]:
    """Return γ and β of layers, which train from now on."""
    return [p.requires_grad_(True) for layer in layers for p in (layer.weight, layer.bias)]


class SelectedSamples:
    """Base of the methods that train γ and β on some samples of each batch, by SGD."""

    def __init__(self, net: nn.Module, fixed: frozenset[str] = frozenset()) -> None:
        with_batch_statistics(net)
        names = [(name, m) for name, m in net.named_modules() if isinstance(m, nn.BatchNorm2d)]
        self.net = net
        self.parameters = affine([m for name, m in names if name not in fixed])
        self.source = [p.detach().clone() for p in self.parameters]
        self.optimizer = torch.optim.SGD(self.parameters, 2.5e-4, momentum=0.9)

    @torch.no_grad()
    def put(self, values: Sequence[Tensor]) -> None:
        for p, value in zip(self.parameters, values, strict=True):
            p.copy_(value)

    def step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class PlainSar(SelectedSamples):
    """Entropy of the reliable samples, at θ + ε; recovery where its average is low (Niu et al. 2023)."""

    average: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        logits = self.net(x)
        h, margin = entropy(logits), 0.4 * math.log(logits.shape[1])
        reliable = h < margin
        self.optimizer.zero_grad()
        h[reliable].mean().backward()
        own = [p.detach().clone() for p in self.parameters]
        norm = torch.stack([p.grad.norm() for p in self.parameters]).norm()
        self.put([p + 0.05 * p.grad / (norm + 1e-12) for p in self.parameters])
        h = entropy(self.net(x))[reliable]
        loss = h[h < margin].mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.put(own)
        self.optimizer.step()
        value = loss.detach()
        self.average = value if self.average is None else 0.9 * self.average + 0.1 * value
        if self.average < 0.2:
            self.put(self.source)
        return logits.detach()


class PlainDeyo(SelectedSamples):
    """Entropy of the sure samples whose prediction falls when their patches are shuffled (Lee et al. 2024)."""

    def __init__(self, net: nn.Module, fixed: frozenset[str], orders: Orders) -> None:
        super().__init__(net, fixed)
        self.orders = orders

    def shuffled(self, x: Tensor) -> Tensor:
        """Cut each image into 4×4 patches, and put these in random order."""
        n, c, height, width = x.shape
        h, w = height // 4, width // 4
        patches = x.view(n, c, 4, h, 4, w).permute(0, 2, 4, 1, 3, 5).reshape(n, 16, c, h, w)
        order = torch.rand(n, 16, generator=self.orders()).argsort(1)
        patches = patches[torch.arange(n)[:, None], order].view(n, 4, 4, c, h, w)
        return patches.permute(0, 3, 1, 4, 2, 5).reshape(n, c, height, width)

    def __call__(self, x: Tensor) -> Tensor:
        logits = self.net(x)
        h, most = entropy(logits), math.log(logits.shape[1])
        with torch.no_grad():
            sure = h < 0.5 * most
            other = self.net(self.shuffled(x[sure])).softmax(1)
            p, y = logits[sure].softmax(1).max(1, keepdim=True)
            plpd = (p - other.gather(1, y)).squeeze(1)
            shaped = plpd > 0.2
        h = h[sure][shaped]
        weight = (0.4 * most - h.detach()).exp() + plpd[shaped].exp()
        self.step((weight * h).mean())
        return logits.detach()


class PlainRdumb(SelectedSamples):
    """Weighted entropy of sure samples unlike the average; back to the source at times (Press et al. 2023)."""

    def __init__(self, net: nn.Module, similarity: float) -> None:
        super().__init__(net)
        self.similarity, self.updates, self.average = similarity, 0, None

    def __call__(self, x: Tensor) -> Tensor:
        if self.updates == 1000:
            self.put(self.source)
            self.optimizer.state.clear()
            self.updates, self.average = 0, None
        self.updates += 1
        logits = self.net(x)
        h, margin = entropy(logits), (0.5 - 1 / math.log(1000)) * math.log(logits.shape[1])
        with torch.no_grad():
            p, chosen = logits.softmax(1), h < margin
            if self.average is not None:
                chosen &= F.cosine_similarity(self.average[None], p).abs() < self.similarity
            mean = p[chosen].mean(0)
            self.average = mean if self.average is None else 0.9 * self.average + 0.1 * mean
        h = h[chosen]
        self.step(((margin - h.detach()).exp() * h).mean())
        return logits.detach()


def unit_range(values: Tensor) -> Tensor:
    return (values - values.min()) / (values.max() - values.min())


class PlainRoid(SelectedSamples):
    """Likelihood ratio and consistency of certain, diverse samples; weights near the source's (Marsden et al. 2024)."""

    def __init__(self, net: nn.Module, views: Views) -> None:
        super().__init__(net)
        self.optimizer = torch.optim.SGD(self.parameters, 2.5e-4, momentum=0.9, nesterov=True)
        self.views, self.average = views, None

    def __call__(self, x: Tensor) -> Tensor:
        logits = self.net(x)
        size, classes = logits.shape
        p = logits.softmax(1)
        with torch.no_grad():
            if self.average is None:
                self.average = p.new_full((classes,), 1 / classes)
            diversity = unit_range(1 - F.cosine_similarity(self.average[None], p))
            certainty = unit_range(-entropy(logits))
            kept = diversity >= diversity.mean()
            weight = (3 * diversity * certainty).exp()[kept]
            self.average = 0.9 * self.average + 0.1 * p.mean(0)
        other_logits = self.net(self.views(x[kept]))
        clipped = p[kept].clamp(max=0.99)
        ratio = -(clipped * (clipped / (1 - clipped) + 1e-5).log()).sum(1)
        log_p, log_other = logits[kept].log_softmax(1), other_logits.log_softmax(1)
        consistency = -(p[kept] * log_other + other_logits.softmax(1) * log_p).sum(1) / 2
        self.step((weight * (ratio + consistency)).sum() / size)
        with torch.no_grad():
            for own, anchor in zip(self.parameters, self.anchors(), strict=True):
                own.mul_(0.99).add_(anchor, alpha=0.01)
            mean = p.mean(0)
            smooth = max(1 / size, 1 / classes) / mean.max()
            return logits * (mean + smooth) / (1 + smooth * classes)

    def anchors(self) -> list[Tensor]:
        """Return what the weights are averaged with."""
        return self.source


class PlainCmf(PlainRoid):
    """ROID with an anchor that a Kalman filter moves (Lee and Chang 2024)."""

    def __init__(self, net: nn.Module, views: Views) -> None:
        super().__init__(net, views)
        self.hidden, self.variance = [p.clone() for p in self.source], 0.0
        self.noise = 0.005 * sum(p.numel() for p in self.parameters) / 38400

    def anchors(self) -> list[Tensor]:
        self.variance = 0.99**2 * self.variance + self.noise
        kept = max(0.89, (1 - self.noise) / (self.variance + 1 - self.noise))
        kept = 1.0 if kept >= 0.9999 else kept
        self.variance *= kept
        for hidden, source, p in zip(self.hidden, self.source, self.parameters, strict=True):
            hidden.mul_(0.99).add_(source, alpha=0.01).mul_(kept).add_(p, alpha=1 - kept)
        return self.hidden


class PlainT3a:
    """Scores against the mean direction of each class's surest features (Iwasawa and Matsuo 2021)."""

    def __init__(self, net: nn.Module, head: nn.Linear) -> None:
        self.net = net.eval()
        self.weight, self.bias = head.weight.detach(), head.bias.detach()
        head.register_forward_pre_hook(self.note)
        logits = F.linear(self.weight, self.weight, self.bias)
        self.supports = F.normalize(self.weight, dim=1)
        self.labels, self.entropies = logits.argmax(1), entropy(logits)

    def note(self, head: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.features = inputs[0]

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        logits = self.net(x)
        self.supports = torch.cat([self.supports, F.normalize(self.features, dim=1)])
        self.labels = torch.cat([self.labels, logits.argmax(1)])
        self.entropies = torch.cat([self.entropies, entropy(logits)])
        kept = []
        for k in range(logits.shape[1]):
            rows = (self.labels == k).nonzero().squeeze(1)
            kept.append(rows[self.entropies[rows].argsort()[:100]])
        rows = torch.cat(kept)
        self.supports, self.labels, self.entropies = self.supports[rows], self.labels[rows], self.entropies[rows]
        sums = F.one_hot(self.labels, logits.shape[1]).to(x.dtype).T @ self.supports
        return self.features @ F.normalize(sums, dim=1).T
