"""The state of an edge model in a file."""

import copy

import numpy as np
import pytest
from torch import nn

import delta_tta
from delta_tta import StateError
from delta_tta.edge import EdgeModel, export
from nets import batches, conv_net

SIZES = (1, 5, 12, 64, 200, 9, 8, 3, 33, 64, 2, 40)


def made(folder, net, example, *arguments, **settings):
    """The network on both sides."""
    path = folder / "model.onnx"
    export(net, example, path, *arguments, **settings)
    return EdgeModel(path, threads=1), delta_tta.adapt(copy.deepcopy(net), *arguments, **settings)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A small network as the recommended method takes it."""
    folder = tmp_path_factory.mktemp("exported")
    made(folder, conv_net(), batches(1)[0])
    return folder / "model.onnx"


def drifting(sizes=SIZES, shape=(3, 8, 8)):
    """A stream with two changes of domain: blurred and loud, and back."""
    stream = [batches(1, size=size, shape=shape, seed=seed)[0] for seed, size in enumerate(sizes * 3)]
    for place in range(len(sizes), 2 * len(sizes)):
        stream[place] = 2 * nn.functional.avg_pool2d(stream[place], 3, 1, 1)
    return stream


def test_reset_and_a_saved_state_go_on_bit_for_bit(exported, tmp_path):
    edge = EdgeModel(exported, threads=1)
    stream = [x.numpy() for x in drifting()]
    first = [edge(x) for x in stream]
    edge.reset()
    again = [edge(x) for x in stream[:20]]
    edge.save(tmp_path / "state.npz")
    resumed = EdgeModel(exported, threads=1)
    resumed.load(tmp_path / "state.npz")
    again += [resumed(x) for x in stream[20:]]
    for one, other in zip(first, again, strict=True):
        assert np.array_equal(one, other)


def test_a_state_of_another_model_or_a_damaged_one_is_refused(exported, tmp_path):
    edge = EdgeModel(exported, threads=1)
    edge(batches(1)[0].numpy())
    edge.save(tmp_path / "state.npz")
    other, _ = made(tmp_path, conv_net(seed=1), batches(1)[0], "source+mirror+sticky")
    with pytest.raises(StateError, match="was saved for another"):
        other.load(tmp_path / "state.npz")
    (tmp_path / "half.npz").write_bytes((tmp_path / "state.npz").read_bytes()[:500])
    with pytest.raises(StateError, match="Expected a state saved by EdgeModel"):
        edge.load(tmp_path / "half.npz")
    assert edge.step == 1
