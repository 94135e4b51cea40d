"""Train a classifier on labelled images, with logit adjustment where classes are imbalanced.

Every random number comes from (seed, epoch, step), and the state is saved as it goes: stopped at any moment, the same
call goes on and ends with the weights of an unbroken run, bit for bit on the same CPU.
"""

from __future__ import annotations

import dataclasses
import errno
import glob
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import __version__
from ..data.crops import DRAWS, random_view
from ..data.sets import ImageSet, as_tensor
from ..engine.digests import architecture, checksum
from ..engine.interrupts import Interrupts
from ..errors import DataError, ModelError, SettingError
from ..files import digest, write_whole
from ..metrics import Metrics
from .load import NamedModel
from .training import Progress, Trained, Training, adjusted_loss, learning_rate, log_prior
from .weights import check_archive, read_weights, weights_file

MOMENTUM = 0.9


def checkpoint_of(out: Path) -> Path:
    """Return the file that keeps the state of an unfinished training."""
    return out.with_name(out.name + ".resume")


def train(
    images: ImageSet,
    named: NamedModel,
    out: str | Path,
    settings: Training | None = None,
    *,
    val: ImageSet | None = None,
    minutes: float = 5.0,
    workers: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Trained:
    """Train the network and write it as a .safetensors file with a card; return what came of it.

    The state is kept beside the file while it trains, every few minutes and after every epoch. Called again, it goes on
    from there; called once more when it is finished, it does nothing. A file of another training is an error.

    Args:
        images: to learn from; their classes become the outputs, in this order.
        named: the network, as `start` or `load` returns it; it is trained in place.
        out: the file to write.
        settings: how; None takes the defaults.
        val: images of the same classes, held out.
        minutes: between two saved states.
        workers: threads that read images; None takes one a core.
        on_progress: called after every step, and after every epoch with the accuracy.
    """
    one = _Run(images, named, Path(out), settings or Training(), val, on_progress or (lambda progress: None))
    done = one.finished()
    if done is not None:
        return done
    one.resume_or_begin()
    devices = [one.device] if one.device.type == "cuda" else []
    with (
        torch.random.fork_rng(devices),
        ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool,
        Interrupts() as stop,
    ):
        one.train(pool, stop, 60 * minutes)
        return one.finish(stop)


class _Run:
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
            saved = _read_checkpoint(self.checkpoint)
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
            for images, labels in self._batches(pool):
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

    def _batches(self, pool: ThreadPoolExecutor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield what is left of the epoch; while one batch trains, the next is read."""
        shuffled = _generator(self.settings.seed, self.epoch)
        order = torch.randperm(len(self.images), generator=shuffled)
        parts = order.tensor_split(self.steps)  # of one size, or one image less

        def read(step: int) -> list[Any]:
            drawn = _generator(self.settings.seed, self.epoch, step)
            draws = torch.rand(len(parts[step]), DRAWS, generator=drawn, dtype=torch.float64).tolist()
            places = parts[step].tolist()
            return [pool.submit(random_view, self.images, *one) for one in zip(places, draws, strict=True)]

        ahead = read(self.step)
        for step in range(self.step, self.steps):
            now, ahead = ahead, read(step + 1) if step + 1 < self.steps else []
            views = np.stack([view.result() for view in now])
            yield as_tensor(views), torch.from_numpy(self.images.labels)[parts[step]]

    def _learn(self, images: Tensor, labels: Tensor) -> None:
        progress = (self.epoch + self.step / self.steps) / self.settings.epochs
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(progress, self.settings.lr)
        torch.manual_seed(_number(self.settings.seed, self.epoch, self.step, "network"))  # dropout
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


def _read_checkpoint(path: Path) -> dict[str, Any]:
    """Return a whole state; nothing in the file is ever run."""
    try:
        check_archive(path)
        saved: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        missing = {"identity", "epoch", "step", "total", "model", "optimizer"} - set(saved)
    except OSError:
        raise
    except Exception as error:  # a damaged file can raise anything
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{path} is not an intact state of a training ({first}); remove it to begin anew.") from None
    if missing:
        raise DataError(f"{path} is not the state of a training; write to another file.")
    return saved


def _number(*parts: object) -> int:
    """Return a seed that no other parts share."""
    return int.from_bytes(bytes.fromhex(digest(repr(parts), 14)), "little")


def _generator(*parts: object) -> torch.Generator:
    return torch.Generator().manual_seed(_number(*parts))


def _plain(name: str) -> str:
    """Return the name of a model without the folder it lies in."""
    return Path(name).name if ".py:" in name else name
