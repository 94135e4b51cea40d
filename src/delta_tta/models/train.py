"""Train a classifier on labelled images, with logit adjustment where classes are imbalanced.

Every random number comes from (seed, epoch, step), and the state is saved as it goes: stopped at any moment, the same
call continues and ends with the weights of an unbroken run, bit for bit on the same CPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from ..data.sets import ImageSet
from ..engine.interrupts import Interrupts
from .load import NamedModel
from .resume import checkpoint_of
from .training import Progress, Trained, Training
from .training_run import TrainingRun

__all__ = ["checkpoint_of", "train"]


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

    The state is kept beside the file while it trains, every few minutes and after every epoch. Called again, it
    continues from there; called once more when it is finished, it does nothing. A file of another training is an error.

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
    one = TrainingRun(images, named, Path(out), settings or Training(), val, on_progress or (lambda progress: None))
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
