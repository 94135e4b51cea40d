"""What a training is: its settings, its loss, its learning rate, and what it tells.

The loss is the cross entropy of logits + τ · log π, with π the share of each class in the training images (logit
adjustment, Menon et al. 2021). Nothing is added to the logits of the trained network, which so favours no class for
having been frequent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.sets import ImageSet
from ..errors import DataError, SettingError

WARM_UP = 0.1
"""Share of the training in which the learning rate rises."""


@dataclass(frozen=True)
class Training:
    """How to train: SGD with momentum 0.9; the learning rate rises over the first tenth, then falls along a cosine.

    Attributes:
        epochs: times that every image is seen.
        batch_size: images in a step, at most.
        lr: the greatest learning rate.
        decay: weight decay, of weights but not of biases and norms.
        adjust: τ of the logit adjustment; 0 for none.
        seed: of everything random.
    """

    epochs: int = 30
    batch_size: int = 128
    lr: float = 0.1
    decay: float = 5e-4
    adjust: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 2), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise SettingError(f"Expected `{name}` to be an integer of at least {least}, but got {value!r}.")
        for name in ("lr", "decay", "adjust"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 <= value < math.inf or (name == "lr" and value == 0):
                above = "above 0" if name == "lr" else "of at least 0"
                raise SettingError(f"Expected `{name}` to be a number {above}, but got {value!r}.")
            object.__setattr__(self, name, float(value))


@dataclass(frozen=True)
class Progress:
    """How far a training is.

    Attributes:
        epoch: which epoch, from 1.
        step: steps done in it.
        steps: how many it has.
        loss: mean over the epoch so far.
        images: how many images this call has trained on.
        class_mean_accuracy: on the held-out images, 0 to 1; after the last step of an epoch, else None.
    """

    epoch: int
    step: int
    steps: int
    loss: float
    images: int
    class_mean_accuracy: float | None = None


@dataclass(frozen=True)
class Trained:
    """What came of it.

    Attributes:
        out: the file.
        card: what is said in it.
        class_mean_accuracy: on the held-out images, 0 to 1; None without them.
        before: whether it was there already.
    """

    out: Path
    card: dict[str, str]
    class_mean_accuracy: float | None
    before: bool = False


def log_prior(images: ImageSet) -> Tensor:
    """Return the logarithm of each class's share of the images, (K,); a class without any is an error."""
    counts = torch.bincount(torch.from_numpy(images.labels), minlength=len(images.classes))
    if len(counts) < 2 or not counts.all():
        missing = f"{images.classes[int(counts.argmin())]!r} has none" if not counts.all() else "there is one class"
        raise DataError(f"{images.name}: expected images of two or more classes, some of each, but {missing}.")
    return (counts.double() / counts.sum()).log().float()


def adjusted_loss(logits: Tensor, labels: Tensor, prior: Tensor, adjust: float = 1.0) -> Tensor:
    """Return the mean cross entropy of logits (B, K) + adjust · log π; `prior` is log π, (K,)."""
    return F.cross_entropy(logits + adjust * prior, labels)


def learning_rate(progress: float, peak: float) -> float:
    """Return the rate after this share of the training: a line up to the peak, then half a cosine down to nothing."""
    if progress < WARM_UP:
        return peak * (0.05 + 0.95 * progress / WARM_UP)
    return peak * 0.5 * (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP)))
