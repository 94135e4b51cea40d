"""One way to name a model, wherever it comes from.

load("resnet20-cifar10")                                the embedded default, weights included
load("torchvision:resnet50")                            with the weights torchvision recommends
load("timm:resnet50.a1_in1k")
load("robustbench:Hendrycks2020AugMix_ResNeXt")         CIFAR-10-C; "robustbench:cifar100/..." for others
load("resnext29", weights="augmix.pth.tar", classes=100)
load("my_models.py:make", weights="mine.safetensors", mean=(...), std=(...))
"""

from __future__ import annotations

from .load import EMBEDDED, NamedModel, known_models, load
from .outputs import Outputs
from .weights import load_weights, read_weights

__all__ = ["EMBEDDED", "NamedModel", "Outputs", "known_models", "load", "load_weights", "read_weights"]
