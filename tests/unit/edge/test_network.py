"""The graph of an edge model: what it takes, and which files it refuses."""

import numpy as np
import pytest
import torch

from delta_tta import DataError, InputError
from delta_tta.edge import EdgeModel
from delta_tta.edge.network import Network
from nets import batches, conv_net


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


def test_a_run_measures_the_samples_from_one_on(exported):
    network, x = Network(exported, 1, None), batches(1)[0].numpy()
    whole, half, none = (network.run(x, first=first) for first in (0, 6, None))
    assert np.array_equal(whole.logits, half.logits)
    np.testing.assert_allclose(half.means, whole.means[6:], atol=1e-6)
    np.testing.assert_allclose(half.variances, whole.variances[6:], rtol=1e-5)
    assert len(none.means) == 0


def test_what_is_measured_are_the_statistics_of_the_batch(exported):
    network, net, x = Network(exported, 1, None), conv_net(), batches(1)[0]
    features = net[0](x).detach()
    mean, std = network.measured(network.run(x.numpy(), first=0))
    first = network.layers[0]
    np.testing.assert_allclose(mean[first], features.mean((0, 2, 3)), atol=1e-5)
    expected = (features.var((0, 2, 3), correction=0) + net[1].eps).sqrt()
    np.testing.assert_allclose(std[first], expected, rtol=1e-4)


def test_the_graph_normalises_with_the_statistics_that_it_is_given(exported):
    network, net, x = Network(exported, 1, None), conv_net().eval(), batches(1)[0]
    np.testing.assert_allclose(network.run(x.numpy()).logits, net(x).detach(), rtol=1e-3, atol=1e-3)
    mean, std = network.source[0] + 0.5, 2 * network.source[1]
    for layer, place in zip((net[1], net[4]), network.layers, strict=True):
        layer.running_mean.copy_(torch.from_numpy(mean[place]))
        layer.running_var.copy_(torch.from_numpy(std[place] ** 2 - layer.eps))
    found = network.run(x.numpy(), (mean, std)).logits
    np.testing.assert_allclose(found, net(x).detach(), rtol=1e-3, atol=1e-3)
    assert not np.allclose(found, network.run(x.numpy()).logits, atol=0.1)
