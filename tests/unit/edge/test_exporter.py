"""Which models become an ONNX file, and which are refused."""

import copy

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta import MethodError, ModelError, SettingError
from delta_tta.edge import export
from nets import SharedNorm, batches, conv_net, forget_statistics, group_norm


@pytest.mark.parametrize(
    ("net", "arguments", "settings", "error", "says"),
    [
        (conv_net, ["tent+delta"], {}, MethodError, "without a loss"),
        (conv_net, ["bn"], {}, MethodError, "without a loss"),
        (conv_net, ["anchored+lame"], {}, MethodError, "but got 'anchored"),
        (conv_net, [], {"background": True}, SettingError, "Expected `background` to be False"),
        (conv_net, [], {"update": "window"}, SettingError, "'auto' or 'every', but got 'window'"),
        (lambda: conv_net(group_norm), ["anchored"], {}, ModelError, "batch norm"),
        (lambda: forget_statistics(conv_net()), ["anchored"], {}, ModelError, "none to be anchored to"),
        (lambda: conv_net().double(), [], {}, ModelError, "in float32, but it has torch.float64"),
        (lambda: delta_tta.adapt(conv_net()), [], {}, ModelError, "Expected a model, but got an adapter"),
    ],
)
def test_what_cannot_be_exported_is_refused(tmp_path, net, arguments, settings, error, says):
    with pytest.raises(error, match=says):
        export(net(), batches(1)[0], tmp_path / "model.onnx", *arguments, **settings)
    assert not list(tmp_path.iterdir())


def test_a_shared_norm_layer_is_refused(tmp_path):
    with pytest.raises(ModelError, match="once, but it ran 2, of which 1 differ"):
        export(SharedNorm(), torch.randn(4, 6), tmp_path / "model.onnx")


def test_the_model_stays_as_it_is(tmp_path):
    net = conv_net().train()
    before = copy.deepcopy(net.state_dict())
    export(net, batches(1)[0], tmp_path / "model.onnx")
    assert net.training
    assert type(net[1]) is nn.BatchNorm2d
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
