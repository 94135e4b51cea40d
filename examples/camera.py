"""Label what a camera sees, and learn from it in the background: no answer waits for the learning of its own frame.

python examples/camera.py                                  # the first camera, until Ctrl-C
python examples/camera.py --source clip.mp4 --frames 300   # a file stands for the camera, at its own pace
python examples/camera.py --source clip.mp4 --foreground   # the same labels, but answers wait for the learning

Frames come one at a time, so 64 of them are collected before they are learnt from, together; the frame after those may
still have to wait a little for the learning to end. What was in view a moment ago counts from the first frame on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import cv2
import numpy as np
import torch

import delta_tta
from delta_tta import data, models


def watch(source: str, rate: float | None) -> Iterator[np.ndarray]:
    """Yield frames, uint8 (H, W, 3), blue first; those of a file as slowly as a camera would give them."""
    camera = cv2.VideoCapture(int(source) if source.isdecimal() else source)
    if not camera.isOpened():
        raise SystemExit(
            f"Expected a camera's number or a video that OpenCV can read as --source, but got {source!r}, which cannot "
            "be opened."
        )
    if source.isdecimal():
        pause = 0.0  # a camera keeps its own time
    else:
        rate = camera.get(cv2.CAP_PROP_FPS) if rate is None else rate
        pause = 1 / rate if rate > 0 else 0.0
    due = time.perf_counter()
    while True:
        there, frame = camera.read()
        if not there:
            return
        time.sleep(max(0.0, due - time.perf_counter()))
        due = time.perf_counter() + pause
        yield frame


def prepared(frame: np.ndarray, named: models.NamedModel) -> torch.Tensor:
    """Return the middle of the frame as a batch of one, (1, 3, size, size)."""
    height, width, _ = frame.shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    middle = frame[top : top + side, left : left + side]
    small = cv2.resize(middle, (named.size, named.size), interpolation=cv2.INTER_AREA)[:, :, ::-1]
    return named.normalisation(torch.from_numpy(small.transpose(2, 0, 1).copy())[None])


def main() -> None:
    """Read the command line, watch, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="0", help="a camera's number, or a video file [%(default)s]")
    parser.add_argument("--frames", type=int, help="stop after so many [never]")
    parser.add_argument("--fps", type=float, help="pace of a file; 0: as fast as possible [the file's own]")
    parser.add_argument(
        "--model", default="resnet20-cifar10", help="see `delta_tta.models.load` [%(default)s, embedded]"
    )
    parser.add_argument("--method", help="`delta-tta methods` lists the words [what `adapt(model)` takes]")
    parser.add_argument("--preset", default="cifar10-c", help="the paper's settings for a set of images [%(default)s]")
    parser.add_argument("--foreground", action="store_true", help="learn before the answer is given, to compare")
    args = parser.parse_args()
    if args.frames is not None and args.frames < 1:
        parser.error(f"--frames: expected at least 1, but got {args.frames}")

    named = models.load(args.model)
    names = data.demo().classes if args.model == "resnet20-cifar10" else ()
    model = delta_tta.adapt(named.model, args.method, args.preset, background=not args.foreground)
    latency: list[float] = []
    shown = None
    try:
        for number, frame in enumerate(watch(args.source, args.fps)):
            started = time.perf_counter()
            label = int(model(prepared(frame, named)).argmax())
            latency.append(1000 * (time.perf_counter() - started))
            if label != shown:
                print(f"frame {number}: {names[label] if label < len(names) else f'class {label}'}", flush=True)
                shown = label
            if args.frames is not None and number + 1 == args.frames:
                break
    except KeyboardInterrupt:
        pass
    model.wait()  # for what is still being learnt, and for an error in it
    if not latency:
        raise SystemExit(f"{args.source} gave no frames.")
    p50, p95, p99 = np.percentile(latency, [50, 95, 99])
    where = "foreground" if args.foreground else "background"
    print(f"{len(latency)} frames, learning in the {where}, {model.signals.samples} samples answered")
    print(f"latency in ms: median {p50:.1f}, 95 % {p95:.1f}, 99 % {p99:.1f}, longest {max(latency):.1f}")


if __name__ == "__main__":
    try:
        main()
    except delta_tta.DeltaError as error:
        raise SystemExit(str(error)) from None
