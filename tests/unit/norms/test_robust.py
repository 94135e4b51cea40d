"""Robust batch norm: moving statistics from the source on, with the batch at hand in them."""

import copy

import torch
from torch.utils.checkpoint import checkpoint

import delta_tta
from all_methods import fitting, make, stream
from delta_tta.norms import RobustStatistics
from nets import SharedNorm, batches, conv_net, flat_net, forget_statistics


def layer_of(adapter):
    return next(module for module in adapter.modules() if isinstance(module, RobustStatistics))


def test_a_batch_is_normalised_with_what_it_moves_the_statistics_to():
    net = flat_net().double()
    x = batches(1, shape=(6,), dtype=torch.float64)[0]
    features = net[0](x)
    mean = 0.95 * net[1].running_mean + 0.05 * features.mean(0)
    var = 0.95 * net[1].running_var + 0.05 * features.var(0, correction=0)
    expected = net[3](((features - mean) / (var + 1e-5).sqrt() * net[1].weight + net[1].bias).relu())
    adapter = delta_tta.adapt(net, "rbn")
    assert torch.allclose(adapter(x), expected, atol=1e-12)
    assert torch.allclose(layer_of(adapter).mean, mean, atol=1e-12)
    assert torch.allclose(layer_of(adapter).std ** 2, var + 1e-5, atol=1e-12)
    assert torch.allclose(adapter.predict(x), expected, atol=1e-12)  # the batch is in the statistics now


def test_predict_normalises_with_the_statistics_as_they_are():
    net = conv_net().eval()
    x = batches(1)[0]
    expected = copy.deepcopy(net)(x)
    adapter = delta_tta.adapt(net, "rbn")
    assert torch.allclose(adapter.predict(x), expected, atol=1e-5)
    assert not torch.allclose(adapter(x), expected, atol=1e-2)


def test_gradients_pass_through_the_batch_s_part():
    net = flat_net().double()
    norm, x = net[1], batches(1, shape=(6,), dtype=torch.float64)[0]
    features = net[0](x).detach().requires_grad_()

    def plain(v):
        mean = 0.75 * norm.running_mean + 0.25 * v.mean(0)
        var = 0.75 * norm.running_var + 0.25 * v.var(0, correction=0)
        return ((v - mean) / (var + norm.eps).sqrt() * norm.weight + norm.bias).square().sum()

    (expected,) = torch.autograd.grad(plain(features), features)
    layer = layer_of(delta_tta.adapt(copy.deepcopy(net), "tent+rbn", alpha=0.75))
    (ours,) = torch.autograd.grad(layer.observe(features).square().sum(), features)
    assert torch.allclose(ours, expected, atol=1e-10)
    layer.discard()
    (frozen,) = torch.autograd.grad(layer.frozen(features).square().sum(), features)
    assert not torch.allclose(frozen, expected, rtol=0.1)


def test_alpha_is_the_paper_s_with_every_preset():
    for preset in (None, *delta_tta.settings.PRESETS):
        assert delta_tta.adapt(conv_net(), "rbn", preset).settings.alpha == 0.95
    assert delta_tta.adapt(conv_net(), "tent+rbn", "ytbb-sub", alpha=0.5).settings.alpha == 0.5


def test_in_the_background_it_answers_the_same():
    plain, behind = (make("rbn", {"background": background}) for background in (False, True))
    for x in stream():
        assert torch.equal(plain(x), behind(x))


def test_a_layer_without_statistics_starts_from_the_first_batch():
    x = batches(1)[0]
    adapter = delta_tta.adapt(forget_statistics(conv_net()), "rbn")
    expected = delta_tta.adapt(forget_statistics(conv_net()), "bn")(x)
    assert torch.allclose(adapter(x), expected, atol=1e-5)
    assert torch.allclose(adapter.predict(x), expected, atol=1e-5)


def test_a_layer_used_twice_moves_twice():
    net = SharedNorm().double()
    x = batches(1, shape=(6,), dtype=torch.float64)[0]
    source = net.norm.running_mean.clone()
    first = net.first(x)
    adapter = delta_tta.adapt(net, "rbn")
    seen = []
    hook = net.second.register_forward_hook(lambda _, __, y: seen.append(y))
    adapter(x)
    hook.remove()
    moved = 0.95 * (0.95 * source + 0.05 * first.mean(0)) + 0.05 * seen[0].mean(0)
    assert torch.allclose(layer_of(adapter).mean, moved, atol=1e-12)


def test_gradient_checkpoints_run_a_layer_again():
    class Checkpointed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = conv_net()

        def forward(self, x):
            return checkpoint(self.net, x + 0 * self.net[1].weight.sum(), use_reentrant=False)

    plain, saving = fitting(conv_net(), "tent+rbn", lr=0.01), fitting(Checkpointed(), "tent+rbn", lr=0.01)
    for x in batches(3):
        assert torch.allclose(plain(x), saving(x), atol=1e-5)
