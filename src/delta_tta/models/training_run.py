"""A training that can be stopped at any moment: its state, its steps, and the file it ends with."""

from __future__ import annotations

import dataclasses
import errno
import glob
import json
import math
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import __version__
from ..data.sets import ImageSet, as_tensor
from ..engine.digests import architecture, checksum
from ..engine.interrupts import Interrupts
from ..errors import DataError, ModelError, SettingError
from ..files import write_whole
from ..metrics import Metrics
from .batches import batches, seed_of
from .load import NamedModel
from .resume import checkpoint_of, read_checkpoint
from .training import Progress, Trained, Training, adjusted_loss, learning_rate, log_prior
from .weights import read_weights, weights_file

MOMENTUM = 0.9


class TrainingRun:
    """A training, and where it is."""

    def __init__(
        self,
        images: ImageSet,
        named: NamedModel,
        out: Path,
        settings: Training,
        val: ImageSet | None,
        tell: Callable[[Progress], None],
    ) -> None:
        if val is not None and val.classes != images.classes:
            raise DataError(f"Expected the held-out images to have the classes of {images.name}, in the same order.")
        self.images, self.named, self.out, self.settings, self.val, self.tell = images, named, out, settings, val, tell
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.prior = log_prior(images).to(self.device)
        self.model = named.model.to(self.device)
        self.checkpoint = checkpoint_of(out)
        _check_outputs(named, images, self.device)
        self.identity: dict[str, Any] = {
            "model": _plain(named.name),
            "layers": architecture(self.model),
            "first weights": checksum(self.model.state_dict())[:16],
            "normalisation": [*named.normalisation.mean, *named.normalisation.std],
            "images": images.fingerprint(),
            "held-out images": None if val is None else val.fingerprint(),
            **asdict(settings),
        }
        self.optimizer = _optimizer(self.model, settings)
        self.epoch, self.step, self.total = 0, 0, 0.0
        self.steps = max(1, min(math.ceil(len(images) / settings.batch_size), len(images) // 2))  # no batch of one
        self.seen = 0
        self.score: float | None = None

    def finished(self) -> Trained | None:
        """Return what is in the file, if it is of this training; None if there is none."""
        if not self.out.exists():
            return None
        card = read_weights(self.out)[1] if self.out.suffix == ".safetensors" else {}
        if "training" not in card:
            raise DataError(f"{self.out} exists and is not of `delta-tta train`; write to another file.")
        self._compare(json.loads(card["training"]), self.out, "Write to another file.")
        return Trained(self.out, card, json.loads(card["class_mean_accuracy"]), before=True)

    def resume_or_begin(self) -> None:
        """Go on from the saved state, or save a first one: what cannot be written is an error before any work."""
        if self.out.suffix != ".safetensors":
            raise SettingError(f"Expected a file to write that ends in .safetensors, but got {self.out}.")
        self.out.parent.mkdir(parents=True, exist_ok=True)
        for leftover in self.out.parent.glob(f".{glob.escape(self.out.name)}*.tmp"):  # of a process that was killed
            leftover.unlink(missing_ok=True)
        if self.checkpoint.exists():
            saved = read_checkpoint(self.checkpoint)
            remedy = f"Go on with those settings, write to another file, or remove {self.checkpoint}."
            self._compare(saved["identity"], self.checkpoint, remedy)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.epoch, self.step, self.total = saved["epoch"], saved["step"], saved["total"]
        else:
            self.save()
            size = self.checkpoint.stat().st_size
            if shutil.disk_usage(self.out.parent).free < size:  # the next state is written beside this one
                self.checkpoint.unlink()
                raise OSError(errno.ENOSPC, f"Expected room for {2 * size:,} bytes", str(self.out.parent))

    def _compare(self, there: dict[str, Any], file: Path, remedy: str) -> None:
        other = next((key for key, value in self.identity.items() if there.get(key) != value), None)
        if other is not None:
            raise DataError(
                f"{file} is of a training with other settings: {other} {there.get(other)!r}, now "
                f"{self.identity[other]!r}. {remedy}"
            )

    def save(self) -> None:
        """Write the state, whole or not at all."""
        state = {
            "identity": self.identity,
            "epoch": self.epoch,
            "step": self.step,
            "total": self.total,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        write_whole(self.checkpoint, lambda file: torch.save(state, file))

    def train(self, pool: ThreadPoolExecutor, stop: Interrupts, seconds: float) -> None:
        """Run the epochs that are left."""
        saved_at = time.monotonic()
        while self.epoch < self.settings.epochs:
            self.model.train()
            for images, labels in batches(self.images, self.settings.seed, self.epoch, self.step, self.steps, pool):
                self._learn(images, labels)
                if self.step == self.steps:
                    break
                self.tell(self._progress())
                if stop.came or time.monotonic() - saved_at >= seconds:
                    self.save()
                    saved_at = time.monotonic()
                    stop.leave()
            done = self._progress()
            self.epoch, self.step, self.total = self.epoch + 1, 0, 0.0
            self.save()
            saved_at = time.monotonic()
            self.score = self._score(stop)
            self.tell(dataclasses.replace(done, class_mean_accuracy=self.score))

    def _progress(self) -> Progress:
        return Progress(self.epoch + 1, self.step, self.steps, self.total / self.step, self.seen)

    def _learn(self, images: Tensor, labels: Tensor) -> None:
        progress = (self.epoch + self.step / self.steps) / self.settings.epochs
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(progress, self.settings.lr)
        torch.manual_seed(seed_of(self.settings.seed, self.epoch, self.step, "network"))  # dropout
        logits = self.model(self.named.normalisation(images.to(self.device)))
        loss = adjusted_loss(logits, labels.to(self.device), self.prior, self.settings.adjust)
        self.optimizer.zero_grad()
        loss.backward()
        value = loss.item()
        if not math.isfinite(value):
            self.checkpoint.unlink(missing_ok=True)  # it would come to the same
            raise SettingError(
                f"The loss is {value} in epoch {self.epoch + 1}, step {self.step + 1}; take a lower `lr` than "
                f"{self.settings.lr:g}."
            )
        self.optimizer.step()
        self.step, self.total, self.seen = self.step + 1, self.total + value, self.seen + len(labels)

    def finish(self, stop: Interrupts) -> Trained:
        """Write the file, and remove the state."""
        score = self._score(stop) if self.score is None else self.score
        scale = self.named.normalisation
        card = {
            "architecture": _plain(self.named.name),
            "classes": json.dumps(self.images.classes),
            "mean": json.dumps(scale.mean),
            "std": json.dumps(scale.std),
            "size": str(self.images.take([0]).shape[1]),
            "class_mean_accuracy": json.dumps(score),
            "images": json.dumps(np.bincount(self.images.labels).tolist()),
            "trained_by": f"delta-tta {__version__} train, from {Path(self.named.weights).name}",
            "training": json.dumps(self.identity),
        }
        content = weights_file(self.model, card)
        write_whole(self.out, lambda file: file.write(content))
        self.checkpoint.unlink(missing_ok=True)
        return Trained(self.out, card, score)

    def _score(self, stop: Interrupts) -> float | None:
        """Return the class-mean accuracy on the held-out images; a state has been saved before."""
        stop.leave()
        if self.val is None:
            return None
        metrics = Metrics(len(self.val.classes))
        self.model.eval()
        with torch.inference_mode():
            for images, labels in self.val.batches(range(len(self.val)), self.settings.batch_size):
                metrics.update(self.model(self.named.normalisation(images.to(self.device))), labels)
                stop.leave()
        return metrics.class_mean_accuracy


def _check_outputs(named: NamedModel, images: ImageSet, device: torch.device) -> None:
    with torch.no_grad():
        shape = tuple(named.model.eval()(named.normalisation(as_tensor(images.take([0])).to(device))).shape)
    if shape != (1, len(images.classes)):
        raise ModelError(
            f"Expected {named.name} to answer an image with (1, {len(images.classes)}) logits, one for each class of "
            f"{images.name}, but got {shape}."
        )


def _optimizer(model: nn.Module, settings: Training) -> torch.optim.SGD:
    weights = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    others = [p for p in model.parameters() if p.requires_grad and p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": settings.decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=settings.lr, momentum=MOMENTUM)
    for parameter in (*weights, *others):  # as after no step; so the first state is as large as any
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def _plain(name: str) -> str:
    """Return the name of a model without the folder it lies in."""
    return Path(name).name if ".py:" in name else name
