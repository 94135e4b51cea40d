"""What becomes of an adapted model when its lens is covered for a while: blank frames in the middle of a stream.

A model adapts to the first half of a stream, meets frames that show nothing but noise, and goes on with the second.
Prints, in Markdown, how right it is there, without such frames and after them, with the guard off and on, and how many
batches of either kind the guard did not learn from; accuracies are means over corruptions and methods.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from delta_tta import adapt
from delta_tta.experiments.experiment import FAMILIES, Place
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.runner import default_cache
from delta_tta.models import NamedModel
from delta_tta.streams import stream

COLOURS = {"black": (0, 0, 0), "grey": (128, 128, 128), "white": (255, 255, 255), "red, as a finger": (190, 60, 50)}
NOISE = (0, 8, 25)
"""Standard deviations, of values 0 to 255."""


def blank(colour: tuple[int, int, int], noise: float, shape: tuple[int, ...]) -> Tensor:
    """Return frames of one colour and noise, uint8 (B, 3, H, W)."""
    exact = torch.tensor(colour).view(1, 3, 1, 1) + noise * torch.randn(shape, generator=torch.manual_seed(0))
    return exact.round().clamp(0, 255).to(torch.uint8)


@dataclass
class Course:
    """One method over one stream with one kind of guard, up to where the lens is covered."""

    named: NamedModel
    preset: str | None
    method: str
    guard: str
    before: list[Tensor]
    after: list[tuple[Tensor, Tensor]]

    def __post_init__(self) -> None:
        self._adapter = adapt(self.named.model, self.method, self.preset, guard=self.guard)
        self._refused = sum(self._meets(x)[1] for x in self.before)
        self._state: dict[str, Any] = self._adapter.state_dict()

    def close(self) -> None:
        """Give the model back."""
        self._adapter.unload()

    def after_frames(self, frames: Tensor | None, count: int) -> tuple[float, int, int]:
        """Return the accuracy after such frames, and how many batches of them, and of all others, were refused."""
        self._adapter.load_state_dict(self._state)
        blanks = sum(self._meets(frames)[1] for _ in range(count)) if frames is not None else 0
        met = [(self._meets(x), y) for x, y in self.after]
        right = torch.cat([answer.argmax(1) == y for (answer, _), y in met])
        return 100 * float(right.double().mean()), blanks, self._refused + sum(refused for (_, refused), _ in met)

    def _meets(self, images: Tensor) -> tuple[Tensor, bool]:
        answer: Tensor = self._adapter(self.named.normalisation(images))
        return answer, self._adapter.signals.bad_input


def courses(options: argparse.Namespace) -> Iterator[Course]:
    """Yield them; each has to be closed before the next."""
    lab = Lab(default_cache())
    place = Place(images=options.images)
    if options.cifar100 is not None:
        place = Place("cifar", str(options.cifar100), "resnet20-cifar100", images=options.images)
    for corruption, method, guard in itertools.product(options.corruptions, options.methods, ("off", "on")):
        images = lab.images(place, corruption, 5)
        batches = list(images.batches(stream(images.labels, "IS+CB", seed=2020).indices, options.batch_size))
        half = len(batches) // 2
        yield Course(lab.model(place), place.preset, method, guard, [x for x, _ in batches[:half]], batches[half:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corruptions", nargs="+", default=list(FAMILIES), metavar="NAME")
    parser.add_argument("--methods", nargs="+", default=["tema", "tent+delta", "ent-w+delta"], metavar="METHOD")
    parser.add_argument("--images", type=int, default=1000, help="length of the stream (default: 1000)")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--frames", type=int, default=20, help="batches of blank frames (default: 20)")
    parser.add_argument("--cifar100", type=Path, metavar="FOLDER", help="CIFAR-100 and the network for it")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # what is refused is counted

    kinds = [("none", (0, 0, 0), 0), *((name, rgb, s) for name, rgb in COLOURS.items() for s in NOISE)]
    found: dict[tuple[str, int, str], list[tuple[float, int, int]]] = {}
    for course in courses(options):
        print(f"{course.method}, guard {course.guard}", file=sys.stderr, flush=True)
        for name, rgb, noise in kinds:
            frames = None if name == "none" else blank(rgb, noise, tuple(course.before[0].shape))
            found.setdefault((name, noise, course.guard), []).append(course.after_frames(frames, options.frames))
        course.close()

    print("| frames | noise | guard off | guard on | blank batches refused | others refused |")
    print("|---|---|---|---|---|---|")
    for name, _, noise in kinds:
        off, on = found[name, noise, "off"], found[name, noise, "on"]
        blanks, others = (sum(run[i] for run in on) for i in (1, 2))
        count = 0 if name == "none" else options.frames * len(on)
        right = [statistics.fmean(run[0] for run in runs) for runs in (off, on)]
        print(f"| {name} | {noise} | {right[0]:.1f} | {right[1]:.1f} | {blanks} of {count} | {others} |")


if __name__ == "__main__":
    main()
