"""Folders of real images: some of the embedded ones as PNG files, and a small network in a file to train on them."""

from pathlib import Path

import numpy as np
from PIL import Image

from delta_tta import data

NETWORK = """
import time
from pathlib import Path
from torch import nn
from delta_tta.normalization import Normalisation

class Net(nn.Sequential):
    def forward(self, x):
        if self.training and Path(__file__).with_name("slow").exists():
            time.sleep(0.2)
        return super().forward(x)

def make(classes):
    net = Net(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(0.2),
        nn.Linear(128, classes),
    )
    net.normalisation = Normalisation((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    return net

def silent(classes):
    net = make(classes)
    del net.normalisation
    return net

def stubborn(classes):
    return make(7)

def ready(classes=10):
    net = make(classes)
    nn.init.constant_(net[0].weight, 0.25)
    return net
"""


def write_images(root: Path, counts: dict[str, int], skip: int = 0) -> Path:
    """Write so many images of each class of CIFAR-10, after the first `skip`, one folder a class."""
    demo = data.demo()
    for name, count in counts.items():
        folder = root / name
        folder.mkdir(parents=True)
        own = np.flatnonzero(demo.labels == demo.classes.index(name))
        for place in own[skip : skip + count]:
            Image.fromarray(demo.images[place]).save(folder / f"{place}.png")
    return root


def write_network(root: Path, function: str = "make") -> str:
    """Write the network; return its name for `models.load`."""
    path = root / "net.py"
    path.write_text(NETWORK)
    return f"{path}:{function}"
