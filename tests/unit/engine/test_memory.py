"""memory="low": the same bits, from about half of the bytes that a forward pass keeps for its backward pass."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

import delta_tta
from all_methods import FEW, make
from delta_tta import SettingError
from delta_tta.engine.memory import packed, unpacked
from delta_tta.models.cifar import CifarResNet
from delta_tta.models.lite import CifarLite
from nets import batches, conv_net, randomise_statistics, same_state
from vision import torchvision


class Functional(nn.Module):
    """Every activation and pool that is replaced, called as a function."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.convs = nn.ModuleList(nn.Conv2d(3 if i == 0 else 5, 5, 3, padding="same") for i in range(9))
            self.norms = nn.ModuleList(nn.BatchNorm2d(5) for _ in range(9))
            self.up, self.fc = nn.ConvTranspose2d(5, 5, 2, stride=2), nn.Linear(5, 4)
            randomise_statistics(self)

    def forward(self, x):
        acts = [
            F.relu, torch.relu, lambda y: F.relu(y, inplace=True), lambda y: y.relu_(), torch.relu_, lambda y: y.relu(),
            F.relu6, lambda y: F.hardtanh(y, -0.75, max_val=0.5), lambda y: F.relu6(y, True),
        ]  # fmt: skip
        for i, act in enumerate(acts):
            y = act(self.norms[i](self.convs[i](x)))
            x = y + x if i in (3, 6) else y
        x = F.avg_pool2d(F.max_pool2d(self.up(x), 2, padding=1), 2)
        return self.fc(F.adaptive_avg_pool2d(F.max_pool2d(input=x, kernel_size=2), 1).flatten(1))


@pytest.mark.parametrize("method", FEW)
def test_the_same_bits(method):
    low, plain = make(method, memory="low"), make(method)
    for x in batches(4, size=7):
        assert torch.equal(low(x), plain(x))
    low.reset()
    plain.reset()
    assert torch.equal(low(x), plain(x))


@pytest.mark.parametrize("kind", ["usual", "channels_last", "float64", "background", "autocast"])
def test_every_activation(kind):
    low, plain = (
        make("tent+delta", net=Functional(), memory=m, background=kind == "background") for m in ("low", None)
    )
    if kind == "float64":
        low, plain = low.double(), plain.double()
    for x in batches(5, size=3, shape=(3, 9, 7), dtype=torch.float64 if kind == "float64" else torch.float32):
        if kind == "channels_last":
            x = x.to(memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
            assert torch.equal(low(x), plain(x))
    assert same_state(low, plain)
    assert low.signals.loss is not None


def kept(forward, model, x):
    """The bytes that a forward pass keeps, apart from the model's own tensors and the images."""
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers(), x)}
    found = {}

    def pack(t):
        storage = t.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes(), t  # alive, so that no address is used twice
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        forward()
    return sum(size for size, _ in found.values())


def alive(model, forward):
    """The bytes that go into layers, or come out of them, and are there after a forward pass: whoever holds them."""
    seen = {}

    def note(_, inputs, output):
        for t in (inputs[0], output):
            storage = t.untyped_storage()
            seen[storage._cdata] = storage.nbytes(), StorageWeakRef(storage)

    hooks = [m.register_forward_hook(note) for m in model.modules() if not list(m.children())]
    result = forward()
    for hook in hooks:
        hook.remove()
    assert result is not None  # it holds the graph
    return sum(size for size, ref in seen.values() if not ref.expired())


@pytest.mark.parametrize(
    ("build", "pixels"),
    [(lambda: CifarResNet(20, 10), 32), (torchvision.models.resnet50, 64), (lambda: CifarLite(10), 32)],
    ids=["ResNet-20", "ResNet-50", "EfficientNet-Lite0"],
)
@pytest.mark.parametrize("method", ["tent", "tent+delta", "tent+anchored"])
def test_at_most_three_fifths_of_tents_bytes(build, pixels, method):
    tent, x = build().train(), torch.randn(2, 3, pixels, pixels)
    for p in tent.parameters():
        p.requires_grad_(False)
    for m in tent.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.requires_grad_(True)
            m.track_running_stats, m.running_mean, m.running_var = False, None, None
    adapter = delta_tta.adapt(build(), method, memory="low", guard="off")
    adapter(x)
    low = kept(lambda: adapter._updater.observe(x), adapter.model, x)
    assert low <= 0.6 * kept(lambda: tent(x), tent, x)
    assert alive(adapter.model, lambda: adapter._updater.observe(x)) <= 0.6 * alive(tent, lambda: tent(x))


def test_models_that_look_at_the_values_of_their_activations():
    class Hooked(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.seen = conv_net(), []

        def forward(self, x):
            y = self.net[:3](x)
            self.seen.append(y.detach().clone())
            return self.net[3:](y)

    low, plain = (make("tent+delta", net=Hooked(), memory=m) for m in ("low", None))
    for x in batches(3):
        assert torch.equal(low(x), plain(x))
    assert all(torch.equal(a, b) for a, b in zip(low.model.seen, plain.model.seen, strict=True))
    assert same_state(low, plain)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 2**16), st.booleans())
def test_flags_survive_packing(shape, seed, transposed):
    flags = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    if transposed and flags.dim() > 1:
        flags = flags.transpose(0, 1).contiguous().transpose(0, 1)
    bits = packed(flags)
    assert bits.dtype == torch.uint8
    assert len(bits) == -(-flags.numel() // 8)
    assert torch.equal(unpacked(bits, flags.shape, flags.stride()).bool(), flags)


def test_it_is_refused_with_a_compiler():
    with pytest.raises(SettingError, match="`memory` to be None with compile=True, but got 'low'"):
        delta_tta.adapt(conv_net(), memory="low", compile=True)
