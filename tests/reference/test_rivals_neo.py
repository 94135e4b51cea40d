"""NEO against an implementation straight from its paper and its published program."""

import pytest
import torch
from torch import nn

import delta_tta
from nets import batches, conv_net, group_norm


class Plain:
    """Algorithm 1 of Murphy et al. 2026; the mean counts samples, as their program does."""

    def __init__(self, encoder, classifier, alpha=None):
        self.encoder, self.classifier, self.alpha = encoder, classifier, alpha
        self.sum, self.count, self.mean = 0, 0, torch.zeros(classifier.in_features, dtype=classifier.weight.dtype)

    @torch.no_grad()
    def __call__(self, x):
        h = self.encoder(x)
        if self.alpha is None:
            self.sum, self.count = self.sum + h.sum(0), self.count + len(h)
            self.mean = self.sum / self.count
        else:
            self.mean = (1 - self.alpha) * self.mean + self.alpha * h.mean(0)
        return self.classifier(h - self.mean)


@pytest.mark.parametrize("norm", [group_norm, nn.BatchNorm2d])
@pytest.mark.parametrize("alpha", [None, 0.1, 1.0])
def test_ten_batches_of_different_sizes(norm, alpha):
    net = conv_net(norm).double().eval()
    plain = Plain(net[:-1], net[-1], alpha)
    stream = [x for i, x in enumerate(batches(10, dtype=torch.float64))]
    stream = [x[: 1 + i % 12] for i, x in enumerate(stream)]
    expected = [plain(x) for x in stream]
    adapter = delta_tta.adapt(net, "neo", **({} if alpha is None else {"neo_alpha": alpha}))
    for x, logits in zip(stream, expected, strict=True):
        assert torch.allclose(adapter(x), logits, rtol=0, atol=1e-9)
    assert torch.allclose(adapter.state_dict()["answer"]["mean"], plain.mean, rtol=0, atol=1e-9)
