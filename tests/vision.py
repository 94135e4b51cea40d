"""torchvision and timm without compiled operators: models need none, and CPU builds come without them."""

import importlib
import sys

import torch

_library = None


def _import_torchvision():
    global _library
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    _library = torch.library.Library("torchvision", "FRAGMENT")  # lives as long as this module
    for name in ("nms", "qnms"):
        _library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return importlib.import_module("torchvision")


torchvision = _import_torchvision()
timm = importlib.import_module("timm")
