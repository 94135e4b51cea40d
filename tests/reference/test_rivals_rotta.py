"""RoTTA equals a plain implementation, written from the formulas: two networks, a list of samples, one at a time."""

import copy
import math

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta.methods import rotta
from nets import CLASSES, batches, conv_net

SCALE = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


def strengthened(pixels):
    """What stands in for the random views, so that both see the same."""
    return 0.1 + 0.7 * pixels.flip(-1)


class PlainRobustNorm(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.weight, self.bias = nn.Parameter(layer.weight.clone()), nn.Parameter(layer.bias.clone())
        self.mean, self.var, self.eps = layer.running_mean.clone(), layer.running_var.clone(), layer.eps
        self.moving = False

    def forward(self, v):
        mean, var = self.mean, self.var
        if self.moving:
            own = v.mean((0, 2, 3))
            mean = 0.95 * mean + 0.05 * own
            var = 0.95 * var + 0.05 * ((v - own[:, None, None]) ** 2).mean((0, 2, 3))
            self.mean, self.var = mean.detach(), var.detach()
        shape = (1, -1, 1, 1)
        v = (v - mean.view(shape)) / torch.sqrt(var.view(shape) + self.eps)
        return v * self.weight.view(shape) + self.bias.view(shape)


class PlainRotta:
    def __init__(self, net, lr, interval, capacity=64):
        self.student, self.teacher = (copy.deepcopy(net).eval().requires_grad_(False) for _ in range(2))
        for one in (self.student, self.teacher):
            for name, child in list(one.named_children()):
                if isinstance(child, nn.BatchNorm2d):
                    setattr(one, name, PlainRobustNorm(child))
        self.norms = [[m for m in net if isinstance(m, PlainRobustNorm)] for net in (self.student, self.teacher)]
        self.optimizer = torch.optim.Adam([p for m in self.norms[0] for p in (m.weight, m.bias)], lr)
        self.interval, self.capacity, self.seen, self.memory = interval, capacity, 0, []

    def __call__(self, x):
        with torch.no_grad():
            logits = self.teacher(x)
        p = logits.softmax(1)
        for image, q in zip(x, p, strict=True):
            entropy = -float((q * (q + 1e-6).log()).sum()) / math.log(CLASSES)
            self.offer({"image": image, "class": int(q.argmax()), "entropy": entropy, "age": 0})
            for one in self.memory:
                one["age"] += 1
            self.seen += 1
            if self.seen % self.interval == 0:
                self.update()
        return logits

    def score(self, one):
        return 1 / (1 + math.exp(-one["age"] / self.capacity)) + one["entropy"]

    def offer(self, new):
        count = [sum(one["class"] == k for one in self.memory) for k in range(CLASSES)]
        if count[new["class"]] >= self.capacity / CLASSES:
            rivals = [one for one in self.memory if one["class"] == new["class"]]
        elif len(self.memory) >= self.capacity:
            rivals = [one for one in self.memory if count[one["class"]] == max(count)]
        else:
            rivals = []
        if rivals:
            worst = max(rivals, key=self.score)
            if self.score(worst) <= self.score(new):
                return
            self.memory = [one for one in self.memory if one is not worst]
        self.memory.append(new)

    def update(self):
        images = torch.stack([one["image"] for one in self.memory])
        age = images.new_tensor([one["age"] / self.capacity for one in self.memory])
        for norm in (*self.norms[0], *self.norms[1]):
            norm.moving = True
        with torch.no_grad():
            target = self.teacher(images).softmax(1)
        strong = (strengthened(images * 0.5 + 0.5) - 0.5) / 0.5
        cross_entropy = -(target * self.student(strong).log_softmax(1)).sum(1)
        loss = (cross_entropy * torch.exp(-age) / (1 + torch.exp(-age))).mean()
        for p in self.optimizer.param_groups[0]["params"]:
            p.requires_grad_(True)
        for norm in (*self.norms[0], *self.norms[1]):
            norm.moving = False
        self.loss = float(loss.detach())
        self.optimizer.zero_grad()
        with torch.enable_grad():
            loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            for student, teacher in zip(*self.norms, strict=True):
                for name in ("weight", "bias"):
                    slow, fast = getattr(teacher, name), getattr(student, name)
                    slow.copy_(0.999 * slow + 0.001 * fast)


@pytest.mark.parametrize(("size", "interval", "capacity"), [(16, 16, 64), (10, 16, 12), (40, 16, 3)])
def test_ten_updates_and_more(size, interval, capacity, monkeypatch):
    monkeypatch.setattr(rotta, "views", lambda x, generator, together: strengthened(x))
    net = conv_net(sharp=1.5).double()
    plain = PlainRotta(net, 0.01, interval, capacity)
    for norms in plain.norms:
        for norm in norms:
            norm.requires_grad_(True)
    ours = delta_tta.adapt(net, "rotta", lr=0.01, rotta_interval=interval, rotta_capacity=capacity, **SCALE)
    source = ours.predict(batches(1, seed=5, dtype=torch.float64)[0])
    for x in batches(16, size=size, dtype=torch.float64):
        before = plain.seen // interval
        assert torch.allclose(ours(x), plain(x), rtol=1e-7, atol=1e-7)
        if plain.seen // interval > before:
            assert ours.signals.loss == pytest.approx(plain.loss, rel=1e-7)
    state = ours.state_dict()
    assert state["objective"]["step"] == plain.seen // interval >= 10
    for place, student, teacher in zip(("1", "4"), *plain.norms, strict=True):
        memory, held = state["objective"], state["statistics"][place]
        for name in ("weight", "bias"):
            assert torch.allclose(state["parameters"][f"{place}.{name}"], getattr(student, name), atol=1e-6)
            assert torch.allclose(memory[f"teacher.{place}.{name}"], getattr(teacher, name), atol=1e-8)
        assert torch.allclose(held["mean"], teacher.mean, atol=1e-7)
        assert torch.allclose(held["std"] ** 2 - 1e-5, teacher.var, atol=1e-7)
        assert torch.allclose(memory[f"student_mean.{place}"], student.mean, atol=1e-7)
        assert torch.allclose(memory[f"student_std.{place}"] ** 2 - 1e-5, student.var, atol=1e-7)
        assert not torch.allclose(student.mean, teacher.mean, atol=1e-3)
    kept = sorted(plain.memory, key=lambda one: one["class"])
    assert state["objective"]["labels"].tolist() == [one["class"] for one in kept]
    assert state["objective"]["age"].tolist() == [one["age"] for one in kept]
    assert torch.equal(state["objective"]["images"], torch.stack([one["image"] for one in kept]))
    assert float((ours.predict(batches(1, seed=5, dtype=torch.float64)[0]) - source).abs().max()) > 0.1
