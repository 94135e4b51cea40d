"""The compact transformer, against its definition."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from delta_tta.errors import InputError
from delta_tta.models.transformer import CompactTransformer


def count(model):
    return sum(p.numel() for p in model.parameters())


def test_the_compact_transformer_computes_what_its_weights_say():
    torch.manual_seed(1)
    model = CompactTransformer(classes=7, width=32, layers=2, heads=2).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    w, x = model.state_dict(), torch.randn(2, 3, 32, 32)

    def layer_norm(y, name):
        mean, var = y.mean(-1, keepdim=True), y.var(-1, keepdim=True, correction=0)
        return (y - mean) / (var + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(y, name):
        return y @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def stem(y, convolution, norm):
        y = F.conv2d(y, w[f"stem.{convolution}.weight"], padding=1).permute(0, 2, 3, 1)
        return layer_norm(y, f"stem.{norm}").relu().permute(0, 3, 1, 2)

    y = F.max_pool2d(stem(x, 0, 1), 2)
    y = F.max_pool2d(stem(stem(y, 4, 5), 7, 8), 2)
    y = F.conv2d(y, w["stem.11.weight"], padding=1).reshape(2, 32, 64).permute(0, 2, 1) + w["position"]
    for name in ("layers.0", "layers.1"):
        q, k, v = linear(layer_norm(y, f"{name}.norm1"), f"{name}.qkv").split(32, dim=2)
        heads = []
        for h in range(2):
            own = slice(16 * h, 16 * h + 16)
            scores = torch.einsum("bnd,bmd->bnm", q[..., own], k[..., own]) / 4
            heads.append(torch.einsum("bnm,bmd->bnd", scores.softmax(2), v[..., own]))
        y = y + linear(torch.cat(heads, 2), f"{name}.proj")
        y = y + linear(F.gelu(linear(layer_norm(y, f"{name}.norm2"), f"{name}.fc1")), f"{name}.fc2")
    y = layer_norm(y, "norm")
    y = (linear(y, "pool").softmax(1) * y).sum(1)
    assert torch.allclose(model(x), linear(y, "fc"), atol=1e-4)


def test_the_compact_transformer_has_no_batch_norm_and_takes_one_size():
    model = CompactTransformer()
    assert 0.6e6 < count(model) < 0.7e6
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())
    with pytest.raises(InputError, match=r"\(B, 3, 32, 32\), but got \(1, 3, 64, 64\)"):
        model(torch.zeros(1, 3, 64, 64))
