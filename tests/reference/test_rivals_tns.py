"""UnMix-TNS, balanced batch norm and T3A against plain implementations, written sample by sample and class by class."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

import delta_tta
from nets import CLASSES, batches, conv_net, flat_net, volume_net

STEPS = 10
EXACT = {torch.float64: 1e-9, torch.float32: 1e-5}


class PlainUnmix(nn.Module):
    """Every sample and every component by itself."""

    def __init__(self, layer, means, variances, momentum=0.1):
        super().__init__()
        self.weight, self.bias, self.eps = layer.weight, layer.bias, layer.eps
        self.means, self.variances, self.momentum = list(means), list(variances), momentum

    def forward(self, v: Tensor) -> Tensor:
        count, out, moves = len(self.means), [], []
        for sample in v.flatten(2):  # (C, L)
            m = sample.mean(1)
            s = ((sample - m[:, None]) ** 2).mean(1)
            cosines = [torch.dot(m, mu) / (m.norm() * mu.norm()) for mu in self.means]
            p = torch.softmax(torch.stack(cosines).detach() / 0.07, 0)
            mixed_m = [(1 - p[k]) * self.means[k] + p[k] * m for k in range(count)]
            mixed_s = [(1 - p[k]) * self.variances[k] + p[k] * s for k in range(count)]
            mean = sum(mixed_m) / count
            var = sum(mixed_s) / count + sum(mu**2 for mu in mixed_m) / count - mean**2
            whitened = (sample - mean[:, None]) / torch.sqrt(var + self.eps)[:, None]
            out.append(self.weight[:, None] * whitened + self.bias[:, None])
            moves.append((p, m.detach(), s.detach()))
        rate = 1 - (1 - self.momentum) ** (len(v) / 64)
        for k in range(count):
            self.means[k] = self.means[k] + rate * sum(p[k] * (m - self.means[k]) for p, m, _ in moves) / len(v)
            self.variances[k] = self.variances[k] + rate * sum(
                p[k] * (s - self.variances[k]) for p, _, s in moves
            ) / len(v)
        return torch.stack(out).view_as(v)


class PlainBalanced(nn.Module):
    """Every class by itself; `labels` are set where the batch teaches."""

    def __init__(self, layer, eta, gamma):
        super().__init__()
        self.weight, self.bias, self.eps, self.eta, self.gamma = layer.weight, layer.bias, layer.eps, eta, gamma
        self.means = [layer.running_mean.clone() for _ in range(CLASSES)]
        self.variances = [layer.running_var.clone() for _ in range(CLASSES)]
        self.labels = None

    def forward(self, v: Tensor) -> Tensor:
        means, variances = self.means, self.variances
        if self.labels is not None:
            means, variances = self.moved(v.flatten(2) if v.dim() > 2 else v[..., None])
            self.means, self.variances = [m.detach() for m in means], [s.detach() for s in variances]
            self.labels = None
        mean = sum(means) / CLASSES
        var = sum(variances) / CLASSES + sum((m - mean) ** 2 for m in means) / (CLASSES - 1)
        shape = (1, -1, *[1] * (v.dim() - 2))
        return (v - mean.view(shape)) / torch.sqrt(var + self.eps).view(shape) * self.weight.view(shape) + (
            self.bias.view(shape)
        )

    def moved(self, v: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        steps, spreads, shares = {}, {}, {}
        for k in sorted(set(self.labels.tolist())):
            own = [v[i] for i in range(len(v)) if self.labels[i] == k]
            a = 1 / len(own) if len(own) > 1 / self.eta else self.eta
            steps[k] = a * sum((one - self.means[k][:, None]).mean(1) for one in own)
            spreads[k] = a * sum(((one - self.means[k][:, None]) ** 2).mean(1) for one in own) - steps[k] ** 2
            shares[k] = a * len(own)
        g, means, variances = self.gamma, list(self.means), list(self.variances)
        for k, share in shares.items():
            means[k] = means[k] + (1 - g) * steps[k]
            variances[k] = variances[k] + (1 - g) * (spreads[k] - share * variances[k])
        of_all = [sum(found.values()) / len(found) for found in (steps, spreads, shares)]
        means = [m + g * of_all[0] for m in means]
        variances = [s + g * (of_all[1] - of_all[2] * s) for s in variances]
        return means, variances


class PlainT3a:
    """One list of supports per class."""

    def __init__(self, net, most):
        net = copy.deepcopy(net).requires_grad_(False)
        self.body, self.head, self.most = net[:-1], net[-1], most
        self.sets = [[] for _ in range(CLASSES)]
        for w in self.head.weight:
            self.add(w)

    def add(self, z: Tensor) -> None:
        p = torch.softmax(self.head(z), 0)
        self.sets[int(p.argmax())].append((float(-(p * p.log()).sum()), z))

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        features = self.body(x)
        for z in features:
            self.add(z)
        self.sets = [sorted(one, key=lambda pair: pair[0])[: self.most] for one in self.sets]
        centres = []
        for one in self.sets:
            total = sum((z / z.norm() for _, z in one), torch.zeros_like(features[0]))
            centres.append(total / total.norm().clamp(min=1e-12))
        return torch.stack([torch.stack([torch.dot(z, c) for c in centres]) for z in features])


def entropy(logits: Tensor) -> Tensor:
    p = logits.softmax(1)
    return -(p * p.log()).sum(1).mean()


def replaced(net, make):
    """The plain net, with every norm layer replaced by what is made of it."""
    plain = copy.deepcopy(net).eval().requires_grad_(False)
    made = []
    for name, child in list(plain.named_children()):
        if isinstance(child, nn.modules.batchnorm._BatchNorm):
            setattr(plain, name, make(child))
            made.append(getattr(plain, name))
    parameters = [p.requires_grad_() for one in made for p in (one.weight, one.bias)]
    return plain, made, torch.optim.SGD(parameters, 0.05, momentum=0.9)


NETS = {
    "2d": (lambda: conv_net(sharp=1.0), (3, 8, 8)),
    "3d": (volume_net, (2, 4, 4, 4)),
}


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("method", ["unmix-tns", "tent+unmix-tns"])
@pytest.mark.parametrize("kind", NETS)
def test_unmix_tns(kind, method, dtype):
    build, shape = NETS[kind]
    net = build().to(dtype)
    lr = {"lr": 0.05, "optimizer": "sgd"} if "tent" in method else {}
    ours = delta_tta.adapt(copy.deepcopy(net), method, unmix_components=6, **lr)
    start = iter(ours.state_dict()["statistics"].values())

    def make(layer):
        found = next(start)
        return PlainUnmix(layer, found["mean"], found["std"] ** 2)

    plain, made, optimizer = replaced(net, make)
    for x in batches(STEPS, size=9, shape=shape, dtype=dtype):
        answer = ours(x)
        logits = plain(x)
        assert torch.allclose(answer, logits, rtol=EXACT[dtype], atol=EXACT[dtype])
        if "tent" in method:
            optimizer.zero_grad()
            entropy(logits).backward()
            optimizer.step()
    for state, one in zip(ours.state_dict()["statistics"].values(), made, strict=True):
        assert torch.allclose(state["mean"], torch.stack(one.means), atol=EXACT[dtype])
        assert torch.allclose(state["std"] ** 2, torch.stack(one.variances), atol=EXACT[dtype])


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("method", ["bbn", "tent+bbn"])
@pytest.mark.parametrize("gamma", [0.0, 0.3])
@pytest.mark.parametrize("kind", [*NETS, "1d"])
def test_balanced_batch_norm(kind, gamma, method, dtype):
    build, shape = {**NETS, "1d": (flat_net, (6,))}[kind]
    net = build().to(dtype)
    lr = {"lr": 0.05, "optimizer": "sgd"} if "tent" in method else {}
    ours = delta_tta.adapt(copy.deepcopy(net), method, bbn_eta=0.2, bbn_gamma=gamma, **lr)
    plain, made, optimizer = replaced(net, lambda layer: PlainBalanced(layer, 0.2, gamma))
    counts = set()
    for x in batches(STEPS, size=16, shape=shape, dtype=dtype):
        with torch.no_grad():
            logits = plain(x)
        assert torch.allclose(ours(x), logits, rtol=EXACT[dtype], atol=EXACT[dtype])
        counts |= set(logits.argmax(1).bincount(minlength=CLASSES).tolist())
        for one in made:
            one.labels = logits.argmax(1)
        taught = plain(x)
        if "tent" in method:
            optimizer.zero_grad()
            entropy(taught).backward()
            optimizer.step()
    assert min(counts) < 5 < max(counts)  # η n on both sides of 1
    for state, one in zip(ours.state_dict()["statistics"].values(), made, strict=True):
        assert torch.allclose(state["mean"], torch.stack(one.means), atol=EXACT[dtype])
        assert torch.allclose(state["std"] ** 2, torch.stack(one.variances), atol=EXACT[dtype])


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("most", [1, 4, 100])
def test_t3a(most, dtype):
    net = conv_net(sharp=1.0).to(dtype).eval()
    ours = delta_tta.adapt(copy.deepcopy(net), "t3a", t3a_supports=most)
    plain, changed = PlainT3a(net, most), 0
    for x in batches(STEPS, size=12, dtype=dtype):
        answer = ours(x)
        assert torch.allclose(answer, plain(x), rtol=EXACT[dtype], atol=EXACT[dtype])
        changed += int((answer.argmax(1) != net(x).argmax(1)).sum())
    assert changed > 0
    kept = ours.state_dict()["answer"]["labels"].long().bincount(minlength=CLASSES).tolist()
    assert kept == [len(one) for one in plain.sets]
    assert max(kept) == (most if most < 100 else max(kept))


def test_unmix_tns_starts_around_the_source():
    source = conv_net()[1]
    means, variances = [], []
    for seed in range(200):
        (state, _) = delta_tta.adapt(conv_net(), "unmix-tns", seed=seed).state_dict()["statistics"].values()
        means.append(state["mean"])
        variances.append(state["std"] ** 2)
    means = torch.stack(means)  # (200, 16, 8)
    assert torch.allclose(torch.stack(variances), source.running_var / 2, rtol=1e-5)
    assert torch.allclose(means.mean((0, 1)), source.running_mean, atol=0.1)
    # α K / (K − 1) of the variance, so that the biased variance of K components is expected to be α of it
    spread = means.var(1, correction=0).mean(0) / source.running_var
    assert torch.allclose(spread, torch.full((8,), 0.5), atol=0.05)
    assert math.isclose(float(spread.mean()), 0.5, abs_tol=0.02)
