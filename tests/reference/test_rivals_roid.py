"""ROID, CMF and prior correction equal plain implementations that are written from the papers' formulas."""

import math

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta.methods import roid
from nets import batches, conv_net, group_norm

STEPS = 10


def brighter_mirror_image(x):
    """Stands in for the random view, whose draws no second implementation could repeat."""
    return x.flip(-1) * 0.9 + 0.05


class PlainRoid:
    """ROID in loops over samples and classes; `cmf` makes it CMF with that process noise."""

    def __init__(self, model, optimizer, lr, cmf=None):
        self.model = model.eval()
        self.parameters = []
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean = module.running_var = None  # then it normalises each batch by itself
            if isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
                self.parameters += [module.weight, module.bias]
        self.source = [p.detach().clone() for p in self.parameters]
        self.hidden = [p.clone() for p in self.source]
        self.variance = 0.0
        self.noise = None if cmf is None else cmf * sum(p.numel() for p in self.parameters) / 38400
        self.optimizer, self.lr, self.t = optimizer, lr, 0
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
        self.average = None
        self.kept = []

    def __call__(self, x):
        logits = self.model(x)
        p = torch.softmax(logits, dim=1)
        size, classes = p.shape
        q = p.detach().tolist()
        average = self.average or [1 / classes] * classes

        def cosine(a, b):
            return sum(s * t for s, t in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))

        def ranged(values):
            return [(v - min(values)) / (max(values) - min(values)) for v in values]

        diversity = ranged([1 - cosine(average, row) for row in q])
        certainty = ranged([sum(v * math.log(v) for v in row) for row in q])
        mean = sum(diversity) / size
        rows = [b for b in range(size) if diversity[b] >= mean]
        views = torch.softmax(self.model(brighter_mirror_image(x[rows])), dim=1)
        loss = 0
        for place, b in enumerate(rows):
            weight = math.exp(3 * diversity[b] * certainty[b])
            for k in range(classes):
                clipped = torch.clamp(p[b, k], max=0.99)
                loss = loss - weight * clipped * torch.log(clipped / (1 - clipped) + 1e-5) / size
                view = views[place, k]
                both = p[b, k] * torch.log(view) + view * torch.log(p[b, k])
                loss = loss - weight * both / 2 / size
        mean_p = [sum(q[b][k] for b in range(size)) / size for k in range(classes)]
        self.average = [0.9 * a + 0.1 * m for a, m in zip(average, mean_p, strict=True)]
        self.trained = len(rows) / size
        self.step(torch.autograd.grad(loss, self.parameters))
        return corrected(logits.detach())

    @torch.no_grad()
    def step(self, gradients):
        self.t += 1
        for i, (p, g) in enumerate(zip(self.parameters, gradients, strict=True)):
            if self.optimizer == "sgd":  # with Nesterov's momentum
                self.first[i] = 0.9 * self.first[i] + g
                p -= self.lr * (g + 0.9 * self.first[i])
            else:
                self.first[i] = 0.9 * self.first[i] + 0.1 * g
                self.second[i] = 0.999 * self.second[i] + 0.001 * g * g
                m = self.first[i] / (1 - 0.9**self.t)
                p -= self.lr * m / (torch.sqrt(self.second[i] / (1 - 0.999**self.t)) + 1e-8)
        towards = self.source if self.noise is None else self.filtered()
        for p, other in zip(self.parameters, towards, strict=True):
            p.copy_(0.99 * p + 0.01 * other)

    def filtered(self):
        q = self.noise
        predicted = 0.99 * 0.99 * self.variance + q
        beta = max(0.89, (1 - q) / (predicted + 1 - q))
        if beta >= 0.9999:
            beta = 1.0
        self.kept.append(beta)
        self.variance = beta * predicted
        for i, p in enumerate(self.parameters):
            recovered = 0.99 * self.hidden[i] + 0.01 * self.source[i]
            self.hidden[i] = beta * recovered + (1 - beta) * p
        return self.hidden


def corrected(logits):
    size, classes = logits.shape
    prior = [float(logits.softmax(1)[:, k].sum()) / size for k in range(classes)]
    smooth = max(1 / size, 1 / classes) / max(prior)
    return torch.stack([logits[:, k] * (prior[k] + smooth) / (1 + smooth * classes) for k in range(classes)], 1)


def stream(dtype):
    return [(0.2 * x + 0.4).clamp(0, 1) for x in batches(STEPS, size=20, dtype=dtype)]


def compare(method, build, optimizer, lr, dtype, tolerance, monkeypatch, cmf=None):
    monkeypatch.setattr(roid, "light_views", lambda pixels, generator: brighter_mirror_image(pixels))
    settings = {} if cmf is None else {"cmf_q": cmf}
    plain = PlainRoid(build().to(dtype), optimizer, lr, cmf)
    ours = delta_tta.adapt(
        build().to(dtype), method, optimizer=optimizer, lr=lr, mean=(0, 0, 0), std=(1, 1, 1), **settings
    )
    for x in stream(dtype):
        assert torch.allclose(ours(x), plain(x), rtol=tolerance, atol=tolerance)
        assert ours.signals.used == pytest.approx(plain.trained)
        assert 0.2 < plain.trained < 0.9
    for mine, theirs, start in zip(
        ours.state_dict()["parameters"].values(), plain.parameters, plain.source, strict=True
    ):
        assert torch.allclose(mine, theirs, rtol=tolerance, atol=tolerance)
        assert (theirs - start).abs().max() > 1e-3
    return plain


@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 2.5e-4), ("adam", 1e-3), ("adam", 0.05)])
@pytest.mark.parametrize("norm", [nn.BatchNorm2d, group_norm])
def test_roid_is_the_plain_one(norm, optimizer, lr, monkeypatch):
    compare("roid", lambda: conv_net(norm, sharp=2.0), optimizer, lr, torch.float64, 1e-9, monkeypatch)


def test_roid_in_single_precision(monkeypatch):
    compare("roid", lambda: conv_net(sharp=2.0), "adam", 1e-3, torch.float32, 1e-5, monkeypatch)


@pytest.mark.parametrize(
    ("noise", "kept"),
    [(0.005, (1.0, 1.0)), (2.0, (0.97, 0.999)), (400.0, (0.89, 0.89))],  # of 48 parameters; q grows with their number
)
@pytest.mark.parametrize("norm", [nn.BatchNorm2d, group_norm])
def test_cmf_is_the_plain_one(norm, noise, kept, monkeypatch):
    build = lambda: conv_net(norm, sharp=2.0)  # noqa: E731
    plain = compare("cmf", build, "adam", 0.02, torch.float64, 1e-9, monkeypatch, cmf=noise)
    assert kept[0] <= min(plain.kept) <= max(plain.kept) <= kept[1]


@pytest.mark.parametrize("size", [1, 3, 12])
def test_prior_correction_is_the_plain_one(size):
    ours = delta_tta.adapt(conv_net().double(), "source+prior-correction")
    without = delta_tta.adapt(conv_net().double(), "source")
    for x in batches(3, size=size, dtype=torch.float64):
        assert torch.allclose(ours(x), corrected(without(x)), rtol=1e-12, atol=1e-12)
