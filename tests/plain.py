"""An independent, plain implementation of the paper's formulas to compare with: no shared code, no tricks.

Everything is written out term by term on autograd: the layers, the losses, DOT, and both optimizers.
"""

import math

import torch
from torch import Tensor, nn


class PlainNorm(nn.Module):
    """One norm layer with "bn", "tema" or "tbr" statistics."""

    def __init__(self, layer: nn.modules.batchnorm._BatchNorm, kind: str, alpha: float, init: str) -> None:
        super().__init__()
        self.kind, self.alpha, self.eps = kind, alpha, layer.eps
        self.weight, self.bias = layer.weight, layer.bias
        self.mean = self.std = None
        if init == "inherit":
            self.mean = layer.running_mean.clone()
            self.std = torch.sqrt(layer.running_var + layer.eps)

    def forward(self, v: Tensor) -> Tensor:
        axes = [0, *range(2, v.dim())]
        count = v.numel() / v.shape[1]
        view = (1, -1, *[1] * (v.dim() - 2))
        mean_b = v.sum(axes) / count
        std_b = torch.sqrt(((v - mean_b.view(view)) ** 2).sum(axes) / count + self.eps)
        if self.kind == "bn":
            out = (v - mean_b.view(view)) / std_b.view(view)
        else:
            if self.mean is None:
                self.mean, self.std = mean_b.detach(), std_b.detach()
            if self.kind == "tema":
                out = (v - self.mean.view(view)) / self.std.view(view)
            else:
                r = std_b.detach() / self.std
                d = (mean_b.detach() - self.mean) / self.std
                out = (v - mean_b.view(view)) / std_b.view(view) * r.view(view) + d.view(view)
            self.mean = self.alpha * self.mean + (1 - self.alpha) * mean_b.detach()
            self.std = self.alpha * self.std + (1 - self.alpha) * std_b.detach()
        if self.weight is not None:
            out = out * self.weight.view(view)
        if self.bias is not None:
            out = out + self.bias.view(view)
        return out


def put_plain_norms(model: nn.Module, kind: str, alpha: float, init: str) -> list[PlainNorm]:
    made = []
    for name, child in list(model.named_children()):
        if isinstance(child, nn.modules.batchnorm._BatchNorm):
            setattr(model, name, PlainNorm(child, kind, alpha, init))
            made.append(getattr(model, name))
        else:
            made += put_plain_norms(child, kind, alpha, init)
    return made


class PlainAdapter:
    """Algorithm 1 of the paper around TENT, PL or Ent-W."""

    def __init__(
        self,
        model,
        objective,
        statistics,
        dot,
        optimizer,
        lr,
        reduction,
        alpha=0.95,
        lam=0.9,
        init="first",
        threshold=None,
        kl_weight=None,
    ):
        self.model = model.eval()
        self.norms = put_plain_norms(model, statistics, alpha, init)
        self.parameters = [p for n in self.norms for p in (n.weight, n.bias)]
        self.objective, self.dot, self.reduction, self.lam = objective, dot, reduction, lam
        self.optimizer, self.lr, self.threshold = optimizer, lr, threshold
        self.kl_weight, self.mean_so_far = kl_weight, None
        self.z, self.t = None, 0
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]

    def __call__(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        p = torch.softmax(logits, dim=1)
        q = p.detach()  # for everything that is a number, not a loss
        size, classes = p.shape
        if self.z is None:
            self.z = torch.full((classes,), 1 / classes, dtype=p.dtype)

        losses, passed = [], []
        for b in range(size):
            top = int(q[b].argmax())
            entropy = -(p[b] * torch.log(p[b])).sum()
            if self.objective == "tent":
                losses.append(entropy)
                passed.append(True)
            elif self.objective == "pl":
                losses.append(-torch.log(p[b, top]))
                passed.append(float(q[b, top]) >= (self.threshold or 0.4))
            else:
                tau = (self.threshold or 0.5) * math.log(classes)
                losses.append(math.exp(tau - float(entropy.detach())) * entropy)
                passed.append(float(entropy.detach()) < tau)

        weights = [1.0] * size
        if self.dot == "hard":
            weights = [1 / (float(self.z[int(q[b].argmax())]) + 1e-8) for b in range(size)]
        elif self.dot == "soft":
            weights = [sum(float(q[b, k]) / (float(self.z[k]) + 1e-8) for k in range(classes)) for b in range(size)]
        total = sum(weights)
        weights = [size * w / total for w in weights]

        if any(passed):
            kept = [w * loss for w, loss, ok in zip(weights, losses, passed, strict=True) if ok]
            loss = sum(kept) / (size if self.reduction == "batch" else len(kept))
            if self.kl_weight is not None:
                loss = loss + self.kl_weight * self.divergence(p)
            self.step(torch.autograd.grad(loss, self.parameters))
        self.z = self.lam * self.z + (1 - self.lam) * q.sum(0) / size
        self.mean_so_far = self.follow(q)
        return logits.detach()

    def follow(self, p: Tensor) -> list[Tensor]:
        """The moving average of the mean prediction, class by class, with that of this batch in it."""
        size, classes = p.shape
        before = [1 / classes] * classes if self.mean_so_far is None else self.mean_so_far
        return [0.9 * before[k] + 0.1 * sum(p[b, k] for b in range(size)) / size for k in range(classes)]

    def divergence(self, p: Tensor) -> Tensor:
        """How far that average is from uniform: the sum over classes of m log(m / (1/K))."""
        return sum(m * torch.log(m * p.shape[1]) for m in self.follow(p))

    @torch.no_grad()
    def step(self, gradients) -> None:
        self.t += 1
        for i, (p, g) in enumerate(zip(self.parameters, gradients, strict=True)):
            if self.optimizer == "sgd":
                self.first[i] = g.clone() if self.t == 1 else 0.9 * self.first[i] + g
                p -= self.lr * self.first[i]
            else:
                self.first[i] = 0.9 * self.first[i] + 0.1 * g
                self.second[i] = 0.999 * self.second[i] + 0.001 * g * g
                m = self.first[i] / (1 - 0.9**self.t)
                v = self.second[i] / (1 - 0.999**self.t)
                p -= self.lr * m / (torch.sqrt(v) + 1e-8)
