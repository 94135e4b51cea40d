"""Those of the rivals in plain_rivals.py that replace the norm layers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plain_rivals import Views, affine


def moments(x: Tensor, dims: Sequence[int], correction: int = 0) -> tuple[Tensor, Tensor]:
    """Return mean and variance, shaped to broadcast against x."""
    var, mean = torch.var_mean(x, dims, correction=correction, keepdim=True)
    return mean, var


def replace(net: nn.Module, make: Callable[[nn.BatchNorm2d], nn.Module]) -> list[nn.Module]:
    """Put another layer in the place of each norm layer; return these, in the order of the network."""
    net.eval().requires_grad_(False)
    made = []
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.BatchNorm2d):
                setattr(parent, name, make(child))
                made.append(getattr(parent, name))
    return made


class Norm(nn.Module):
    """Base of the layers below: holds γ, β and the statistics of a batch norm layer."""

    def __init__(self, layer: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(layer.weight.detach().clone()), nn.Parameter(layer.bias.detach().clone())
        self.mean, self.var, self.eps = layer.running_mean.clone(), layer.running_var.clone(), layer.eps
        self.learning = False

    def normalised(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        """Normalise with statistics that broadcast against x."""
        return (x - mean) * (var + self.eps).rsqrt() * self.weight[:, None, None] + self.bias[:, None, None]

    def fixed(self, x: Tensor) -> Tensor:
        """Normalise with the statistics of the layer."""
        return F.batch_norm(x, self.mean, self.var, self.weight, self.bias, False, 0.0, self.eps)

    def move(self, mean: Tensor, var: Tensor, momentum: float) -> None:
        """Move the statistics of the layer."""
        self.mean = (1 - momentum) * self.mean + momentum * mean.detach().flatten()
        self.var = (1 - momentum) * self.var + momentum * var.detach().flatten()


class RobustNorm(Norm):
    """RoTTA's layer: moving statistics with this batch in them."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.learning:
            return self.fixed(x)
        mean, var = moments(x, (0, 2, 3))
        before = self.mean[:, None, None], self.var[:, None, None]
        self.move(mean, var, 0.05)
        return self.normalised(x, 0.95 * before[0] + 0.05 * mean, 0.95 * before[1] + 0.05 * var)


class InstanceAwareNorm(Norm):
    """NOTE's layer: the statistics of the layer, or of the batch that trains, corrected for each sample."""

    def forward(self, x: Tensor) -> Tensor:
        mean, var = self.mean[:, None, None], self.var[:, None, None]
        if self.learning:
            mean, var = moments(x, (0, 2, 3), correction=1)
            self.move(mean, var, 0.01)
        own_mean, own_var = moments(x, (2, 3), correction=1)
        count = x.shape[2] * x.shape[3]
        of_mean = 4 * ((var + self.eps) / count).sqrt()
        of_var = 4 * (var + self.eps) * math.sqrt(2 / (count - 1))
        return self.normalised(
            x, mean + shrunk(own_mean - mean, of_mean), (var + shrunk(own_var - var, of_var)).clamp(min=0)
        )


def shrunk(value: Tensor, by: Tensor) -> Tensor:
    return value.sign() * (value.abs() - by).clamp(min=0)


@torch.no_grad()
def learn(layers: Sequence[Norm], learning: bool) -> None:
    for layer in layers:
        layer.learning = learning


class PlainRotta:
    """A student learns from a slow teacher on a memory, balanced over classes (Yuan et al. 2023)."""

    def __init__(self, student: nn.Module, teacher: nn.Module, views: Views) -> None:
        self.student, self.teacher, self.views = student, teacher, views
        self.of_student, self.of_teacher = replace(student, RobustNorm), replace(teacher, RobustNorm)
        self.parameters = affine(self.of_student)
        self.slow = [p for layer in self.of_teacher for p in (layer.weight, layer.bias)]
        for p in self.slow:
            p.requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.parameters, 1e-3)
        self.capacity, self.seen = 64, 0
        self.rooms: list[list[dict[str, Any]]] = []

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        logits = self.teacher(x)
        p = logits.softmax(1)
        self.rooms = self.rooms or [[] for _ in range(p.shape[1])]
        uncertainty = -(p * (p + 1e-6).log()).sum(1) / math.log(p.shape[1])
        for image, label, unsure in zip(x, p.argmax(1).tolist(), uncertainty.tolist(), strict=True):
            new = {"image": image, "unsure": unsure, "age": 0}
            if self.has_room(label, new):
                self.rooms[label].append(new)
            for room in self.rooms:
                for one in room:
                    one["age"] += 1
            self.seen += 1
            if self.seen % 64 == 0:
                self.update()
        return logits

    def score(self, one: dict[str, Any]) -> float:
        return 1 / (1 + math.exp(-one["age"] / self.capacity)) + one["unsure"]

    def has_room(self, label: int, new: dict[str, Any]) -> bool:
        sizes = [len(room) for room in self.rooms]
        if sizes[label] >= self.capacity / len(self.rooms):
            rooms = [self.rooms[label]]
        elif sum(sizes) < self.capacity:
            return True
        else:
            rooms = [room for room in self.rooms if len(room) == max(sizes)]
        score, room, place = max(
            ((self.score(one), room, i) for room in rooms for i, one in enumerate(room)), key=lambda found: found[0]
        )
        if score <= self.score(new):
            return False
        del room[place]
        return True

    def update(self) -> None:
        kept = [one for room in self.rooms for one in room]
        images = torch.stack([one["image"] for one in kept])
        age = images.new_tensor([one["age"] for one in kept]) / self.capacity
        strong = self.views(images)
        learn([*self.of_student, *self.of_teacher], True)
        target = self.teacher(images).softmax(1)
        with torch.enable_grad():
            each = -(target * self.student(strong).log_softmax(1)).sum(1)
            loss = (each * (-age).exp() / (1 + (-age).exp())).mean()
        learn([*self.of_student, *self.of_teacher], False)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for slow, fast in zip(self.slow, self.parameters, strict=True):
            slow.mul_(0.999).add_(fast, alpha=0.001)


class PlainNote:
    """Instance-aware norm layers learn from a balanced reservoir (Gong et al. 2022)."""

    def __init__(self, net: nn.Module, draws: Callable[[], tuple[float, float]] | None = None) -> None:
        self.net, self.layers = net, replace(net, InstanceAwareNorm)
        self.optimizer = torch.optim.Adam(affine(self.layers), 1e-4)
        self.draws = draws or (lambda: (random.random(), random.random()))
        self.capacity, self.seen = 64, 0
        self.rooms: list[list[Tensor]] = []
        self.counts: list[int] = []

    def __call__(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            logits = self.net(x)
        self.rooms = self.rooms or [[] for _ in range(logits.shape[1])]
        self.counts = self.counts or [0] * logits.shape[1]
        for image, label in zip(x, logits.argmax(1).tolist(), strict=True):
            self.offer(image, label, *self.draws())
            self.seen += 1
            if self.seen % 64 == 0:
                self.update()
        return logits

    def offer(self, image: Tensor, label: int, first: float, second: float) -> None:
        self.counts[label] += 1
        sizes = [len(room) for room in self.rooms]
        if sum(sizes) >= self.capacity:
            largest = [room for room, size in zip(self.rooms, sizes, strict=True) if size == max(sizes)]
            if sizes[label] < max(sizes):
                room = largest[int(first * len(largest))]
            elif first <= sizes[label] / self.counts[label]:
                room = self.rooms[label]
            else:
                return
            del room[int(second * len(room))]
        self.rooms[label].append(image)

    def update(self) -> None:
        learn(self.layers, True)
        p = self.net(torch.stack([image for room in self.rooms for image in room])).softmax(1)
        learn(self.layers, False)
        self.optimizer.zero_grad()
        (-(p * (p + 1e-6).log()).mean()).backward()
        self.optimizer.step()


class UnmixNorm(Norm):
    """UnMix-TNS: each sample's statistics mixed into K moving ones (Tomar et al. 2024)."""

    def __init__(self, layer: nn.BatchNorm2d, means: Tensor, variances: Tensor) -> None:
        super().__init__(layer)
        self.means, self.variances = means, variances  # (K, C)

    def forward(self, x: Tensor) -> Tensor:
        mean, var = moments(x, (2, 3))
        mean, var = mean.flatten(1), var.flatten(1)  # (B, C)
        cosine = F.normalize(mean, dim=1) @ F.normalize(self.means, dim=1).T
        p = (cosine / 0.07).softmax(1)[:, :, None]  # (B, K, 1)
        mixed_mean = (1 - p) * self.means + p * mean[:, None]  # (B, K, C)
        mixed_var = (1 - p) * self.variances + p * var[:, None]
        centre = mixed_mean.mean(1)
        spread = mixed_var.mean(1) + (mixed_mean**2).mean(1) - centre**2
        rate = 1 - (1 - 0.1) ** (len(x) / 64)
        self.means = self.means + rate * (p * (mean[:, None] - self.means)).mean(0)
        self.variances = self.variances + rate * (p * (var[:, None] - self.variances)).mean(0)
        return self.normalised(x, centre[:, :, None, None], spread[:, :, None, None])


class PlainUnmix:
    """A network with these layers; `start` gives the means and variances of each, in the order of the network."""

    def __init__(self, net: nn.Module, start: Iterator[tuple[Tensor, Tensor]]) -> None:
        self.net = net
        replace(net, lambda layer: UnmixNorm(layer, *next(start)))

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        return self.net(x)


class BalancedNorm(Norm):
    """TRIBE's layer: statistics by class, all classes alike (Su et al. 2024)."""

    labels: Tensor | None = None
    """One-hot, (B, K), where the batch moves the statistics."""

    def __init__(self, layer: nn.BatchNorm2d, classes: int) -> None:
        super().__init__(layer)
        self.means, self.variances = self.mean.repeat(classes, 1), self.var.repeat(classes, 1)  # (K, C)
        self.eta = max(0.0005 * classes, 0.01)
        self.gamma = 0.0 if classes <= 10 else 0.1 if classes <= 100 else 0.5

    def forward(self, x: Tensor) -> Tensor:
        if self.labels is not None:
            self.learn(*moments(x, (2, 3)))
        self.mean = self.means.mean(0)
        self.var = self.variances.mean(0) + self.means.var(0)
        return self.fixed(x)

    def learn(self, mean: Tensor, var: Tensor) -> None:
        mean, var = mean.flatten(1), var.flatten(1)  # (B, C)
        counts = self.labels.sum(0)
        rate = (1 / counts.clamp(min=1)).clamp(max=self.eta)[:, None]  # (K, 1)
        apart = mean - self.labels @ self.means
        step = rate * (self.labels.T @ apart)  # (K, C), 0 for classes that do not occur
        spread = rate * (self.labels.T @ (var + apart**2)) - step**2
        share = rate * counts[:, None]
        alone, together = 1 - self.gamma, self.gamma / (counts > 0).sum()
        self.means = self.means + alone * step
        self.means = self.means + together * step.sum(0)
        self.variances = self.variances + alone * (spread - share * self.variances)
        self.variances = self.variances + together * (spread.sum(0) - share.sum() * self.variances)


class PlainBalanced:
    """Answers with the statistics from before the batch; a second run moves them by the labels of the answer."""

    def __init__(self, net: nn.Module, classes: int) -> None:
        self.net, self.layers = net, replace(net, lambda layer: BalancedNorm(layer, classes))

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        logits = self.net(x)
        self.label(F.one_hot(logits.argmax(1), logits.shape[1]).to(x.dtype))
        self.net(x)
        self.label(None)
        return logits

    def label(self, labels: Tensor | None) -> None:
        for layer in self.layers:
            layer.labels = labels
