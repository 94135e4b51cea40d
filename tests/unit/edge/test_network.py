"""The graph of an edge model: what it takes, and which files it refuses."""

import copy

import numpy as np
import pytest

import delta_tta
from delta_tta import DataError, InputError
from delta_tta.edge import EdgeModel, export
from nets import batches, conv_net


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


def test_a_bad_batch_says_what_was_expected(exported):
    edge = EdgeModel(exported, threads=1)
    for x in (np.zeros((2, 3, 9, 8), np.float32), np.zeros((2, 3, 8, 8)), np.zeros((0, 3, 8, 8), np.float32)):
        with pytest.raises(InputError, match=r"Expected images of shape \('B', 3, 8, 8\) and type float32"):
            edge(x)
    with pytest.raises(InputError, match="Expected one `stream` for each of 2 samples, but got 1"):
        edge(np.zeros((2, 3, 8, 8), np.float32), ["one"])
    assert edge.step == 0


def test_files_that_are_no_edge_models(tmp_path):
    with pytest.raises(DataError, match="is missing"):
        EdgeModel(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("text")
    with pytest.raises(DataError, match="Expected an ONNX file"):
        EdgeModel(tmp_path / "text.onnx")
