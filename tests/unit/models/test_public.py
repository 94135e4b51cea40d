"""The networks of two public collections, against their definitions."""

import torch
import torch.nn.functional as F

from delta_tta.models.public import GroupResNet, PlainResNet
from nets import randomise_statistics


def count(model):
    return sum(p.numel() for p in model.parameters())


def normed(x, weights, name, eps=1e-5):
    take = (weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
    return F.batch_norm(x, *take, training=False, eps=eps)


def test_the_public_resnet_without_shortcut_weights_computes_what_its_weights_say():
    torch.manual_seed(1)
    model = randomise_statistics(PlainResNet(20, classes=7)).eval()
    w = model.state_dict()
    assert count(PlainResNet(20)) == 269722  # He et al. 2016: 0.27 million
    x = torch.randn(2, 3, 32, 32)
    y = F.relu(normed(F.conv2d(x, w["conv1.weight"], padding=1), w, "bn1"))
    for stage, i in ((s, i) for s in (1, 2, 3) for i in range(3)):
        name, stride = f"layer{stage}.{i}", 2 if stage > 1 and i == 0 else 1
        z = F.relu(normed(F.conv2d(y, w[f"{name}.conv1.weight"], stride=stride, padding=1), w, f"{name}.bn1"))
        z = normed(F.conv2d(z, w[f"{name}.conv2.weight"], padding=1), w, f"{name}.bn2")
        if stride == 2:
            half = torch.zeros(2, y.shape[1] // 2, *z.shape[2:])
            y = torch.cat([half, y[:, :, ::2, ::2], half], 1)
        y = F.relu(y + z)
    assert torch.allclose(model(x), y.mean((2, 3)) @ w["linear.weight"].T + w["linear.bias"], atol=1e-4)


def test_the_public_resnet_with_group_norm_computes_what_its_weights_say():
    torch.manual_seed(1)
    model = randomise_statistics(GroupResNet(26, classes=7)).eval()
    w = model.state_dict()

    def grouped(x, name):
        parts = x.view(len(x), 8, -1)
        parts = (parts - parts.mean(2, keepdim=True)) / (parts.var(2, unbiased=False, keepdim=True) + 1e-5).sqrt()
        return F.relu(parts.view_as(x) * w[f"{name}.weight"].view(-1, 1, 1) + w[f"{name}.bias"].view(-1, 1, 1))

    x = torch.randn(2, 3, 32, 32)
    y = F.conv2d(x, w["conv1.weight"], padding=1)
    for stage, i in ((s, i) for s in (1, 2, 3) for i in range(4)):
        name, stride = f"layer{stage}.{i}", 2 if stage > 1 and i == 0 else 1
        z = F.conv2d(grouped(y, f"{name}.bn1"), w[f"{name}.conv1.weight"], stride=stride, padding=1)
        z = F.conv2d(grouped(z, f"{name}.bn2"), w[f"{name}.conv2.weight"], padding=1)
        if stride == 2:
            pooled = F.avg_pool2d(y, 2)
            y = torch.cat([pooled, torch.zeros_like(pooled)], 1)
        y = y + z
    assert torch.allclose(model(x), grouped(y, "bn").mean((2, 3)) @ w["fc.weight"].T + w["fc.bias"], atol=1e-4)
