"""Without torch the same answers: an edge model against the adapter, batch by batch."""

import copy
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import delta_tta
from delta_tta import InputError
from delta_tta.edge import EdgeModel, export
from delta_tta.rules.domain import LEAST
from delta_tta.rules.shares import SHARES
from nets import batches, bright, channel_net, conv_net, flat_net, group_norm, volume_net, with_blank

SIZES = (1, 5, 12, 64, 200, 9, 8, 3, 33, 64, 2, 40)


def made(folder, net, example, *arguments, **settings):
    """The network on both sides."""
    path = folder / "model.onnx"
    export(net, example, path, *arguments, **settings)
    return EdgeModel(path, threads=1), delta_tta.adapt(copy.deepcopy(net), *arguments, **settings)


@pytest.fixture
def both(exported):
    """That network on both sides."""
    return EdgeModel(exported, threads=1), delta_tta.adapt(conv_net())


def drifting(sizes=SIZES, shape=(3, 8, 8)):
    """A stream with two changes of domain: blurred and loud, and back."""
    stream = [batches(1, size=size, shape=shape, seed=seed)[0] for seed, size in enumerate(sizes * 3)]
    for place in range(len(sizes), 2 * len(sizes)):
        stream[place] = 2 * nn.functional.avg_pool2d(stream[place], 3, 1, 1)
    return stream


def assert_same_answers(edge, adapter, images, **named):
    """Answers, choices and refusals are the same at every batch; return the shares met."""
    shares = set()
    for x in images:
        names = {key: value(len(x)) for key, value in named.items()}
        expected = adapter(x, **names)
        found = torch.from_numpy(edge(x.numpy(), **names))
        assert torch.allclose(found.softmax(1), expected.softmax(1), atol=1e-4, equal_nan=True)
        signals = adapter.signals
        assert edge.skipped == signals.skipped
        assert (edge.share, edge.refused, edge.step) == (signals.share or 0.0, signals.refused, signals.step)
        assert edge.stays == pytest.approx(signals.stays or 0.0, abs=1e-4)
        again = torch.from_numpy(edge.predict(x.numpy()))
        assert torch.allclose(again.softmax(1), adapter.predict(x).softmax(1), atol=1e-4, equal_nan=True)
        shares.add(edge.share)
    return shares


def test_it_answers_as_the_adapter_does(both):
    edge, adapter = both
    assert_same_answers(edge, adapter, drifting())
    assert edge.method == str(adapter.recipe)


def test_it_leaves_the_source_as_the_adapter_does(tmp_path):
    """Images of which the source always says the last class."""
    stream = []
    for seed in range(12):
        labels = torch.randint(10, (64,), generator=torch.Generator().manual_seed(seed))
        stream.append(bright(labels, seed=seed))
        stream[-1][:, -1] += 2
    edge, adapter = made(tmp_path, channel_net(), stream[0])
    assert max(assert_same_answers(edge, adapter, stream)) > 0


@pytest.mark.parametrize("slot", range(len(SHARES)))
def test_it_answers_as_the_adapter_does_with_each_slot(both, slot):
    edge, adapter = both
    assert_same_answers(edge, adapter, drifting((64, 64)))
    chooser = adapter._updater.shares
    chooser.memory = replace(chooser.memory, slot=slot, due=1000)  # it answers from now on
    chooser.settle()
    edge._state = replace(edge._state, shares=replace(edge._state.shares, slot=slot, due=1000))
    assert assert_same_answers(edge, adapter, drifting((64, 12, 40, 3))) == {SHARES[slot]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("anchored", {"alpha": 0.8}),
        ("anchored+mirror", {"update": "every"}),
        ("anchored+sticky", {"filter": "causal", "guard": "off"}),
        ("source+mirror+sticky", {}),
    ],
)
def test_parts_of_the_method_and_settings(tmp_path, method, settings):
    edge, adapter = made(tmp_path, conv_net(), batches(1)[0], method, **settings)
    shares = assert_same_answers(edge, adapter, drifting())
    assert len(shares) > 1 or method.startswith("source")


def test_a_new_domain_begins_where_the_adapter_sees_one(both):
    edge, adapter = both
    stream = drifting((32,) * (LEAST + 4))
    batches_of_domain = []
    for x in stream:
        adapter(x), edge(x.numpy())
        own = edge._state.shares
        assert own.batches == adapter._updater.shares.memory.batches
        batches_of_domain.append(own.batches)
    assert batches_of_domain.count(1) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "shape"), [(flat_net, (6,)), (volume_net, (2, 5, 6, 6)), (lambda: conv_net(group_norm), (3, 8, 8))]
)
def test_other_networks(tmp_path, net, shape):
    stream = batches(12, size=24, shape=shape)
    edge, adapter = made(tmp_path, net(), stream[0])
    assert_same_answers(edge, adapter, stream)


def test_streams_are_kept_apart(both):
    edge, adapter = both
    assert_same_answers(edge, adapter, batches(6), stream=lambda size: [f"camera {n % 3}" for n in range(size)])


def test_garbage_is_answered_and_not_learnt_from(both):
    stream = with_blank(batches(9, size=16), 4)
    stream[2] = stream[2] * 1e6
    stream[6] = stream[6].clone()
    stream[6][3] = float("nan")
    edge, adapter = both
    assert_same_answers(edge, adapter, stream)
    assert edge.refused == 3


def test_values_that_are_not_finite_are_refused_without_a_guard(tmp_path):
    edge, _ = made(tmp_path, conv_net(), batches(1)[0], "anchored", guard="off")
    with pytest.raises(InputError, match=r"samples \[1\] of the batch hold NaN"):
        edge(np.where(np.arange(3)[:, None, None, None] == 1, np.nan, np.ones((3, 3, 8, 8))).astype(np.float32))
    assert edge.step == 0


def test_predict_changes_nothing(exported):
    edge = EdgeModel(exported, threads=1)
    stream = [x.numpy() for x in batches(6)]
    for x in stream:
        edge(x)
    before = edge._state.arrays()
    assert np.array_equal(edge.predict(stream[0]), edge.predict(stream[0]))
    after = edge._state.arrays()
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[key], after[key]) for key in before)


WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())
import numpy as np
from delta_tta.edge import EdgeModel
model = EdgeModel(sys.argv[1], threads=1)
for seed in range(3):
    logits = model(np.random.default_rng(seed).normal(size=(16, 3, 8, 8)).astype(np.float32))
model.save(sys.argv[2])
np.save(sys.argv[3], logits)
import delta_tta
try:
    delta_tta.adapt
except ModuleNotFoundError as error:
    print(error)
assert not any(name.split(".")[0] == "torch" for name in sys.modules)
"""


@pytest.mark.slow
def test_it_runs_without_torch(exported, tmp_path):
    edge = EdgeModel(exported, threads=1)
    files = [exported, tmp_path / "state.npz", tmp_path / "logits.npy"]
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "delta_tta.adapt needs PyTorch" in done.stdout
    for seed in range(3):
        logits = edge(np.random.default_rng(seed).normal(size=(16, 3, 8, 8)).astype(np.float32))
    assert np.array_equal(np.load(files[2]), logits)


@pytest.mark.slow
@pytest.mark.parametrize("dependent", [False, True])
def test_a_real_network_over_corrupted_images(tmp_path, dependent):
    from delta_tta import data, models

    named = models.load("resnet20-cifar10")
    images = data.demo()
    order = np.random.default_rng(0).permutation(len(images))[:832]
    if dependent:
        order = order[np.argsort(images.labels[order], kind="stable")]
    stream = []
    for corruption in ("motion_blur", "gaussian_noise"):
        drifted = data.Corrupted(data.Subset(images, len(images)), corruption, 5)
        stream += [named.normalisation(x) for x, _ in drifted.batches(list(order), 64)]
    edge, adapter = made(tmp_path, named.model, stream[0])
    assert max(assert_same_answers(edge, adapter, stream)) > 0
    assert edge._state.shares.batches < len(stream)  # the second corruption is another domain
