"""Models that cannot be adapted: what the errors teach, and that nothing has changed."""

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta import ModelError, SettingError
from nets import conv_net, group_norm


@pytest.mark.parametrize(
    ("net", "method", "teaches"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), "tent", "Write 'source'"),
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), "bn", "Write 'source'"),
        (conv_net(group_norm), "tent+delta", "Write 'tent+dot'"),
        (conv_net(group_norm), "ent-w+tbr", "Write 'ent-w'"),
        (conv_net(group_norm), "tema", "Write 'source'"),
        (conv_net(lambda c: nn.BatchNorm2d(c, affine=False)), "tent+delta", "Write 'tema'"),
        (nn.Sequential(nn.LazyConv2d(4, 3), nn.BatchNorm2d(4)), "bn", "run it once"),
        ("resnet50", "bn", "torch.nn.Module"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_models_that_lack_what_the_method_needs(net, method, teaches):
    with pytest.raises(ModelError) as error:
        delta_tta.adapt(net, method)
    assert teaches in str(error.value)


def test_a_model_made_under_inference_mode():
    with torch.inference_mode():
        net = conv_net()
    with pytest.raises(ModelError, match="inference_mode"):
        delta_tta.adapt(net, "tent")


def test_a_model_that_is_a_norm_layer_itself():
    with pytest.raises(ModelError, match="norm layer itself"):
        delta_tta.adapt(nn.BatchNorm1d(5), "bn")


def test_a_component_that_cannot_be_built_leaves_the_model_alone():
    net = conv_net()
    modules = list(net.modules())
    with pytest.raises(SettingError, match="at most 1"):
        delta_tta.adapt(net, "pl+delta", threshold=1.5)
    assert list(net.modules()) == modules
    assert all(p.requires_grad for p in net.parameters())
    delta_tta.adapt(net, "pl+delta")
