"""NOTE equals a plain implementation, written from the formulas: sample by sample, value by value."""

import copy
import math

import pytest
import torch
from torch import nn

import delta_tta
from nets import CLASSES, batches, conv_net


def shrunk(value, by):
    return torch.sign(value) * torch.clamp(value.abs() - by, min=0)


class PlainInstanceNorm(nn.Module):
    def __init__(self, layer, k, momentum):
        super().__init__()
        self.weight, self.bias = nn.Parameter(layer.weight.clone()), nn.Parameter(layer.bias.clone())
        self.mean, self.var, self.eps = layer.running_mean.clone(), layer.running_var.clone(), layer.eps
        self.k, self.momentum, self.learning = k, momentum, False

    def forward(self, v):
        mean, var = self.mean, self.var
        if self.learning:
            mean, var = v.mean((0, 2, 3)), v.var((0, 2, 3), correction=1)
            self.mean = (1 - self.momentum) * self.mean + self.momentum * mean.detach()
            self.var = (1 - self.momentum) * self.var + self.momentum * var.detach()
        count = v.shape[2] * v.shape[3]
        rows = []
        for sample in v:
            own_mean, own_var = sample.mean((1, 2)), sample.var((1, 2), correction=1)
            of_mean = torch.sqrt((var + self.eps) / count)
            of_var = (var + self.eps) * math.sqrt(2 / (count - 1))
            m = mean + shrunk(own_mean - mean, self.k * of_mean)
            s = torch.clamp(var + shrunk(own_var - var, self.k * of_var), min=0)
            rows.append((sample.permute(1, 2, 0) - m) / torch.sqrt(s + self.eps) * self.weight + self.bias)
        return torch.stack(rows).permute(0, 3, 1, 2)


class PlainNote:
    def __init__(self, net, lr, interval, capacity, k, momentum):
        self.net = copy.deepcopy(net).eval().requires_grad_(False)
        for name, child in list(self.net.named_children()):
            if isinstance(child, nn.BatchNorm2d):
                setattr(self.net, name, PlainInstanceNorm(child, k, momentum))
        self.norms = [m for m in self.net if isinstance(m, PlainInstanceNorm)]
        self.optimizer = torch.optim.Adam([p for m in self.norms for p in (m.weight, m.bias)], lr)
        self.interval, self.capacity = interval, capacity
        self.memory, self.count, self.seen = [], [0] * CLASSES, 0

    def __call__(self, x):
        return torch.cat([self.one(image) for image in x])

    def one(self, image):
        with torch.no_grad():
            logits = self.net(image[None])
        updates, position = divmod(self.seen, self.interval)
        generator = torch.Generator().manual_seed(updates * (self.interval + 1) + position)
        self.offer(image, int(logits.argmax()), *torch.rand(2, generator=generator, dtype=torch.float64).tolist())
        self.seen += 1
        if self.seen % self.interval == 0:
            self.update()
        return logits

    def offer(self, image, label, first, second):
        self.count[label] += 1
        if len(self.memory) == self.capacity:
            sizes = [sum(k == own for own, _ in self.memory) for k in range(CLASSES)]
            most = [k for k in range(CLASSES) if sizes[k] == max(sizes)]
            from_class = label if label in most else most[int(first * len(most))]
            if label in most and first > sizes[label] / self.count[label]:
                return
            of_class = [i for i, (own, _) in enumerate(self.memory) if own == from_class]
            del self.memory[of_class[int(second * len(of_class))]]
        self.memory.append((label, image))

    def update(self):
        for norm in self.norms:
            norm.learning = True
        p = self.net(torch.stack([image for _, image in self.memory])).softmax(1)
        loss = -(p * torch.log(p + 1e-6)).sum() / p.numel()
        self.loss = float(loss.detach())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for norm in self.norms:
            norm.learning = False


@pytest.mark.parametrize(("size", "interval", "capacity", "k"), [(16, 16, 64, 4.0), (8, 16, 6, 0.5), (5, 5, 3, 0.0)])
def test_ten_updates_and_more(size, interval, capacity, k):
    net = conv_net(sharp=1.5).double()
    plain = PlainNote(net, 0.01, interval, capacity, k, 0.2)
    for norm in plain.norms:
        norm.requires_grad_(True)
    ours = delta_tta.adapt(
        net, "note", lr=0.01, iabn_k=k, note_interval=interval, note_capacity=capacity, note_momentum=0.2
    )
    source = ours.predict(batches(1, seed=5, dtype=torch.float64)[0])
    for x in batches(22, size=size, dtype=torch.float64):
        assert torch.allclose(ours(x), plain(x), rtol=1e-9, atol=1e-9)
        if plain.seen % interval == 0:
            assert ours.signals.loss == pytest.approx(plain.loss, rel=1e-9)
    state = ours.state_dict()
    assert state["objective"]["step"] == plain.seen // interval >= 10
    for place, norm in zip(("1", "4"), plain.norms, strict=True):
        assert torch.allclose(state["parameters"][f"{place}.weight"], norm.weight, atol=1e-9)
        assert torch.allclose(state["parameters"][f"{place}.bias"], norm.bias, atol=1e-9)
        assert torch.allclose(state["statistics"][place]["mean"], norm.mean, atol=1e-9)
        assert torch.allclose(state["statistics"][place]["std"] ** 2 - norm.eps, norm.var, atol=1e-9)
    kept = sorted(plain.memory, key=lambda one: one[0])
    assert state["objective"]["labels"].tolist() == [label for label, _ in kept]
    assert state["objective"]["counts"].tolist() == plain.count
    assert torch.equal(state["objective"]["images"], torch.stack([image for _, image in kept]))
    assert float((ours.predict(batches(1, seed=5, dtype=torch.float64)[0]) - source).abs().max()) > 0.1
