"""Which norm layers belong to the last blocks, for the names that libraries give them."""

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta.models.cifar import CifarResNet, CifarResNeXt, WideResNet
from delta_tta.norms.last import last_blocks
from nets import conv_net
from vision import timm, torchvision

NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)
FIRST_AND_LAST = {
    "torchvision resnet18": ("layer4.0.bn1", "layer4.1.bn2"),
    "torchvision vit_b_16": ("encoder.layers.encoder_layer_9.ln_1", "encoder.ln"),
    "torchvision swin_t": ("features.6.norm", "norm"),
    "torchvision convnext_tiny": ("features.6.0", "classifier.0"),
    "torchvision densenet121": ("features.denseblock4.denselayer1.norm1", "features.norm5"),
    "timm resnet50_gn": ("layer4.0.bn1", "layer4.2.bn3"),
    "timm vit_base_patch16_224": ("blocks.9.norm1", "norm"),
    "timm swin_tiny_patch4_window7_224": ("layers.3.downsample.norm", "norm"),
    "timm convnext_tiny": ("stages.3.downsample.0", "head.norm"),
}


def norm_layers(net):
    return [name for name, m in net.named_modules() if isinstance(m, NORMS)]


@pytest.mark.parametrize("name", FIRST_AND_LAST)
def test_networks_of_torchvision_and_timm(name):
    library, model = name.split()
    with torch.device("meta"):
        net = torchvision.models.get_model(model) if library == "torchvision" else timm.create_model(model)
    layers = norm_layers(net)
    last = [layer for layer in layers if layer in last_blocks(layers)]
    assert (last[0], last[-1]) == FIRST_AND_LAST[name]
    assert last == layers[-len(last) :]


@pytest.mark.parametrize("name", ["resnet50", "resnet50_gn", "vit_base_patch16_224"])
def test_it_is_the_published_list_where_there_is_one(name):
    """Niu et al. leave out layer4 of ResNets, and blocks 9 to 11 and the final norm of ViT-B, by name."""
    with torch.device("meta"):
        layers = norm_layers(timm.create_model(name))
    published = ("layer4.", "blocks.9.", "blocks.10.", "blocks.11.")
    assert last_blocks(layers) == {layer for layer in layers if layer.startswith(published) or layer == "norm"}


def test_networks_for_cifar():
    layers = norm_layers(CifarResNet(20))
    assert last_blocks(layers) == {layer for layer in layers if layer.startswith(("blocks.6", "blocks.7", "blocks.8"))}
    layers = norm_layers(CifarResNeXt())
    assert last_blocks(layers) == {layer for layer in layers if layer.startswith("stage_3")}
    layers = norm_layers(WideResNet())
    assert last_blocks(layers) == {layer for layer in layers if layer.startswith("block3") or layer == "bn1"}


@pytest.mark.parametrize(
    ("layers", "last"),
    [
        ([], set()),
        (["1"], set()),
        (["norm"], set()),
        (["1", "4"], {"4"}),
        (["stem", "body", "head"], {"head"}),
        (["0.bn1", "0.layer1.bn", "0.layer2.bn"], {"0.layer2.bn"}),  # behind a layer that normalises the images
        (["a.b1", "a.b2", "c", "d", "e", "f", "g", "h"], {"g", "h"}),  # numbers inside a block are not blocks
        ([f"{i}.norm{j}" for i in range(4) for j in (1, 2)] + ["norm"], {"3.norm1", "3.norm2", "norm"}),
    ],
)
def test_other_names(layers, last):
    assert last_blocks(layers) == last


def test_the_last_blocks_do_not_train_but_normalise_as_the_others():
    for method in ("sar", "deyo"):
        net = conv_net()
        adapter = delta_tta.adapt(net, method)
        assert set(adapter.state_dict()["parameters"]) == {"1.weight", "1.bias"}
        assert [name for name, p in net.named_parameters() if p.requires_grad] == ["1.source.weight", "1.source.bias"]
        assert type(net[1]) is type(net[4])
    net = nn.Sequential(nn.BatchNorm2d(3), *conv_net())
    net[5] = nn.BatchNorm2d(16, affine=False)  # has nothing to train, and is no block
    assert set(delta_tta.adapt(net, "sar").state_dict()["parameters"]) == {"0.weight", "0.bias"}
