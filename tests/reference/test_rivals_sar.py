"""SAR, DeYO and RDumb against plain implementations, written from the formulas alone."""

import copy
import math

import pytest
import torch
from torch import nn

import delta_tta
from nets import batches, conv_net, group_norm

CLASSES, STEPS, LR = 5, 10, 0.02


def plain_forward(net, x):
    """Batch norms normalise with the statistics of the batch."""
    for layer in net:
        if isinstance(layer, nn.BatchNorm2d):
            mean = x.mean((0, 2, 3), keepdim=True)
            var = ((x - mean) ** 2).mean((0, 2, 3), keepdim=True)
            x = (x - mean) / (var + layer.eps).sqrt()
            x = x * layer.weight.view(1, -1, 1, 1) + layer.bias.view(1, -1, 1, 1)
        elif not isinstance(layer, nn.Dropout):
            x = nn.functional.relu(x) if isinstance(layer, nn.ReLU) else layer(x)
    return x


def entropies(logits):
    p = logits.softmax(1)
    return -(p * p.log()).sum(1)


class Plain:
    """A network whose given layers train by SGD with momentum 0.9."""

    def __init__(self, net, layers):
        self.net = copy.deepcopy(net)
        self.weights = [p for i in layers for p in (self.net[i].weight, self.net[i].bias)]
        self.start = [p.detach().clone() for p in self.weights]
        self.momentum = [torch.zeros_like(p) for p in self.weights]

    def run(self, x):
        return plain_forward(self.net, x)

    def put(self, values):
        with torch.no_grad():
            for p, value in zip(self.weights, values, strict=True):
                p.copy_(value)

    def step(self, gradients):
        self.momentum = [0.9 * m + g for m, g in zip(self.momentum, gradients, strict=True)]
        self.put([p.detach() - LR * m for p, m in zip(self.weights, self.momentum, strict=True)])


class PlainSar(Plain):
    def __init__(self, net, recovery):
        super().__init__(net, [1])  # of two norm layers the last does not train
        self.recovery, self.mean_loss = recovery, None
        self.recoveries = self.lost = 0  # how often the source came back; how many left the selection at θ + ε

    def __call__(self, x):
        margin = 0.4 * math.log(CLASSES)
        logits = self.run(x)
        h = entropies(logits)
        first = [i for i in range(len(x)) if h[i] < margin]
        gradients = [torch.zeros_like(p) for p in self.weights]
        if first:
            climb = torch.autograd.grad(sum(h[i] for i in first) / len(first), self.weights)
            norm = math.sqrt(sum(float((g**2).sum()) for g in climb))
            own = [p.detach().clone() for p in self.weights]
            self.put([p + 0.05 * g / (norm + 1e-12) for p, g in zip(own, climb, strict=True)])
            h = entropies(self.run(x))
            second = [i for i in first if h[i] < margin]
            self.lost += len(first) - len(second)
            if second:
                loss = sum(h[i] for i in second) / len(second)
                gradients = torch.autograd.grad(loss, self.weights)
                value = float(loss.detach())
                self.mean_loss = value if self.mean_loss is None else 0.9 * self.mean_loss + 0.1 * value
            self.put(own)
        self.step(gradients)
        if self.mean_loss is not None and self.mean_loss < self.recovery:
            self.put(self.start)  # the momentum and the average stay
            self.recoveries += 1
        return logits.detach()


def equal_over(plain, adapter, stream, within=1e-9):
    used = []
    for x in stream:
        assert torch.allclose(adapter(x), plain(x), rtol=within, atol=within)
        used.append(adapter.signals.used)
    for mine, theirs in zip(adapter.state_dict()["parameters"].values(), plain.weights, strict=True):
        assert torch.allclose(mine, theirs, rtol=within, atol=within)
    return used


def moved(plain):
    return max(float((p.detach() - s).abs().max()) for p, s in zip(plain.weights, plain.start, strict=True))


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, group_norm])
@pytest.mark.parametrize("size", [12, 2])
def test_sar(norm, size):
    net = conv_net(norm, sharp=3.0).double()
    plain = PlainSar(net, recovery=0.0)
    adapter = delta_tta.adapt(net, "sar", lr=LR, sar_recovery=0.0)
    used = equal_over(plain, adapter, batches(STEPS, size=size, dtype=torch.float64))
    assert any(0 < share < 1 for share in used)
    assert moved(plain) > 1e-2
    assert float(adapter.state_dict()["objective"]["loss"]) == pytest.approx(plain.mean_loss, rel=1e-9)


def test_sar_recovers_and_leaves_out_what_is_unsure_at_the_second_run():
    net = conv_net(sharp=2.5).double()
    plain = PlainSar(net, recovery=0.45)
    adapter = delta_tta.adapt(net, "sar", lr=LR, sar_recovery=0.45)
    equal_over(plain, adapter, batches(40, size=12, dtype=torch.float64))
    assert 0 < plain.recoveries < 40
    assert plain.lost > 0


def test_sar_in_single_precision():
    net = conv_net(sharp=3.0)
    equal_over(PlainSar(net, 0.2), delta_tta.adapt(net, "sar", lr=LR), batches(STEPS, size=12), within=1e-5)


class PlainDeyo(Plain):
    def __init__(self, net, seed):
        super().__init__(net, [1])
        self.seed, self.steps, self.counts = seed, 0, []

    def shuffled(self, images):
        """Cut 8×8 images into 4×4 patches of 2×2 pixels; one order for each image."""
        mixed = (self.seed * 0x9E3779B1 + self.steps) % 2**32
        random = torch.Generator().manual_seed(int(mixed))
        orders = torch.rand(len(images), 16, generator=random).argsort(1).tolist()
        out = torch.empty_like(images)
        for n, order in enumerate(orders):
            for to, origin in enumerate(order):
                r, c, i, j = 2 * (to // 4), 2 * (to % 4), 2 * (origin // 4), 2 * (origin % 4)
                out[n, :, r : r + 2, c : c + 2] = images[n, :, i : i + 2, j : j + 2]
        return out

    def __call__(self, x):
        logits = self.run(x)
        h, p = entropies(logits), logits.softmax(1).detach()
        sure = [i for i in range(len(x)) if h[i] < 0.5 * math.log(CLASSES)]
        terms = []
        if sure:
            with torch.no_grad():
                other = self.run(self.shuffled(x[sure])).softmax(1)
            for row, i in enumerate(sure):
                y = int(p[i].argmax())
                plpd = float(p[i, y] - other[row, y])
                if plpd > 0.2:
                    weight = math.exp(0.4 * math.log(CLASSES) - float(h[i].detach())) + math.exp(plpd)
                    terms.append(weight * h[i])
        if terms:
            self.step(torch.autograd.grad(sum(terms) / len(terms), self.weights))
        self.counts.append((len(sure), len(terms)))
        self.steps += 1
        return logits.detach()


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, group_norm])
@pytest.mark.parametrize("seed", [0, 7])
def test_deyo(norm, seed):
    net = conv_net(norm, sharp=3.0).double()
    plain = PlainDeyo(net, seed)
    adapter = delta_tta.adapt(net, "deyo", lr=LR, seed=seed)
    used = equal_over(plain, adapter, batches(STEPS, size=12, dtype=torch.float64))
    assert used == [trained / 12 for _, trained in plain.counts]
    assert any(0 < trained < sure < 12 for sure, trained in plain.counts)
    assert moved(plain) > 1e-2


class PlainRdumb(Plain):
    def __init__(self, net, every, similarity):
        super().__init__(net, [1, 4])
        self.every, self.similarity, self.batches, self.mean = every, similarity, 0, None

    def __call__(self, x):
        if self.batches % self.every == 0:
            self.put(self.start)
            self.momentum, self.mean = [torch.zeros_like(p) for p in self.weights], None
        self.batches += 1
        margin = (math.log(1000) / 2 - 1) / math.log(1000) * math.log(CLASSES)
        logits = self.run(x)
        h, p = entropies(logits), logits.softmax(1).detach()
        chosen = [i for i in range(len(x)) if h[i] < margin]
        if self.mean is not None:
            m = self.mean
            chosen = [i for i in chosen if abs(float(m @ p[i] / m.norm() / p[i].norm())) < self.similarity]
        if chosen:
            loss = sum(math.exp(margin - float(h[i].detach())) * h[i] for i in chosen) / len(chosen)
            mean = sum(p[i] for i in chosen) / len(chosen)
            self.mean = mean if self.mean is None else 0.9 * self.mean + 0.1 * mean
            self.step(torch.autograd.grad(loss, self.weights))
        return logits.detach()


@pytest.mark.parametrize("every", [1, 4, 10, 1000])
def test_rdumb(every):
    net = conv_net(sharp=3.0).double()
    plain = PlainRdumb(net, every, 0.8)
    adapter = delta_tta.adapt(net, "rdumb", lr=LR, similarity=0.8, reset_every=every)
    for n, x in enumerate(batches(STEPS, size=12, dtype=torch.float64)):
        assert torch.allclose(adapter(x), plain(x), rtol=1e-9, atol=1e-9)
        now = adapter.state_dict()["parameters"].values()
        expected = plain.start if (n + 1) % every == 0 else plain.weights  # ours resets after the update
        assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-9) for a, b in zip(now, expected, strict=True))
    assert moved(plain) > 1e-3
    assert adapter.signals.step == STEPS


def test_rdumb_resets_every_thousand_updates_by_default():
    assert delta_tta.adapt(conv_net(), "rdumb").settings.reset_every == 1000
    assert delta_tta.adapt(conv_net(), "rdumb", "cifar10-c").settings.reset_every == 1000
    assert delta_tta.adapt(conv_net(), "eta").settings.reset_every is None
