"""The state of an edge model in a file."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from torch import nn

import delta_tta
from delta_tta import StateError
from delta_tta.edge import EdgeModel, export
from delta_tta.edge.mirror import Agreement
from delta_tta.edge.state import State, load, save
from delta_tta.rules.answers import MeanAnswers
from delta_tta.rules.domain import Domain
from delta_tta.rules.filters import Beliefs
from delta_tta.rules.shares import Memory
from nets import batches, conv_net

SIZES = (1, 5, 12, 64, 200, 9, 8, 3, 33, 64, 2, 40)


def made(folder, net, example, *arguments, **settings):
    """The network on both sides."""
    path = folder / "model.onnx"
    export(net, example, path, *arguments, **settings)
    return EdgeModel(path, threads=1), delta_tta.adapt(copy.deepcopy(net), *arguments, **settings)


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


def stateful(seed=0):
    """A state with everything in it."""
    draw = np.random.default_rng(seed)

    def floats(*shape):
        return draw.random(shape).astype(np.float32)

    memory = Memory(2, 7, 9, 700.5, (0.0, 1.0, 2.5, -3.0, 4.0), (7, 5, 4, 4, 0), (7, 5, 6, 4, 0))
    memory = replace(memory, domain=Domain(3, floats(3), floats(3)), answers=MeanAnswers(floats(5, 3, 9, 4), floats(9)))
    beliefs = Beliefs(
        MeanAnswers(floats(3, 9, 4), floats(9)), floats(3, 4), {"left": floats(3, 4, 4), 7: floats(3, 4, 4)}
    )
    averages = floats(3, 6), floats(3, 6)
    return State(memory, averages, Agreement(floats(4), floats(4), 11, 2), beliefs, floats(2, 3, 8, 8), 13, 1)


@pytest.mark.parametrize("state", [State(), stateful(), replace(stateful(), averages=None, kept=None)])
def test_what_is_saved_comes_back(state, tmp_path):
    save(state, "a model", tmp_path / "state.npz")
    again = load("a model", tmp_path / "state.npz")
    first, second = state.arrays(), again.arrays()
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert np.array_equal(value, second[name]), name
        assert value.dtype == second[name].dtype
    assert (again.step, again.refused) == (state.step, state.refused)
    assert list(again.beliefs.beliefs) == list(state.beliefs.beliefs)
    assert (again.shares.slot, again.shares.due, again.shares.evidence) == (
        state.shares.slot,
        state.shares.due,
        state.shares.evidence,
    )


def test_a_state_is_that_of_one_model_and_the_file_is_left_as_it_was(tmp_path):
    path = tmp_path / "state.npz"
    save(stateful(), "a model", path)
    before = path.read_bytes()
    with pytest.raises(StateError, match=r"a state of this model \(another\), but .* saved for another \(a model\)"):
        load("another", path)
    assert path.read_bytes() == before
    with pytest.raises(StateError, match="Expected a state saved by EdgeModel"):
        load("a model", tmp_path / "nowhere.npz")
    np.savez(path, x=np.zeros(3))
    with pytest.raises(StateError, match="Expected a state saved by EdgeModel"):
        load("a model", path)
